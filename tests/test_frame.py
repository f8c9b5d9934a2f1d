"""The frame: one row per case and cell, texts that stay texts."""

from __future__ import annotations

import csv
import io

import pandas as pd

from conformance.expectations import parse
from conformance.frame import COLUMNS, csv_chunks, frame
from tests.builders import cell, grid, record, result
from tests.test_expectations import entry


def test_releases_stay_text() -> None:
    found = frame(grid({"init.x": {"2.1": "pass", "2.10": "wrong"}}), [])
    assert list(found["torch"]) == ["2.1", "2.10"]
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == COLUMNS
    again = pd.read_csv(io.BytesIO(b"".join(csv_chunks(grid({"init.x": {"2.10": "pass"}}), []))), dtype=str)
    assert list(again["torch"]) == ["2.10"]
    assert list(again["python"]) == ["3.11"]


def test_a_row_is_the_worst_attempt_of_a_case_in_a_cell() -> None:
    where = cell("2.10.0", "cuda", tag="h200")
    rows = [
        record(where, "init.x[a]"),
        record(where, "init.x[a]", "raises", attempt=2, reason="boom", blame={"file": "a.py", "line": 3, "source": "x"}),
        record(where, "init.x[b]", subject="gpt", exception={"type": "ValueError", "message": "no"}),
    ]
    found = frame(result((where, rows)), [])
    assert len(found) == 2
    first = found.iloc[0].to_dict()
    assert (first["case"], first["verdict"], first["attempts"], first["blame"]) == ("init.x[a]", "raises", 2, "a.py:3")
    assert (first["device"], first["tag"], first["cell"]) == ("cuda", "h200", str(where))
    assert (found.iloc[1]["subject"], found.iloc[1]["exception"]) == ("gpt", "ValueError: no")


def test_what_excuses_a_row_stands_beside_it() -> None:
    found = frame(grid({"init.x": {"2.9.0": "wrong", "2.10.0": "pass"}}), parse(entry(), "e.toml"))
    assert [(row.verdict, row.expected) for row in found.itertuples()] == [("wrong", "bits moved"), ("pass", "")]


def test_no_results_give_an_empty_frame_of_the_same_columns() -> None:
    found = frame(grid({}), [])
    assert (len(found), list(found.columns)) == (0, list(COLUMNS))


def test_csv_is_inert_and_reads_back() -> None:
    reasons = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", 'a "quoted", text\nwith lines\r\x00', "plain"]
    rows = [record("2.4.1", f"init.x{number}", "wrong", reason=reason) for number, reason in enumerate(reasons)]
    text = b"".join(csv_chunks(result((cell("2.4.1"), rows)), [])).decode()
    read = list(csv.DictReader(io.StringIO(text)))
    assert [row["reason"] for row in read] == [
        "'=cmd|' /C calc'!A0",
        "'+1",
        "'-1",
        "'@x",
        'a "quoted", text\nwith lines\\x0d\\x00',
        "plain",
    ]
    assert [row["cell"] for row in read] == [str(cell("2.4.1"))] * 6
