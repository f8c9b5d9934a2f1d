"""Results on disk: atomic and deterministic writing, readers that survive damage, and holes that become records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from conformance import artifacts
from conformance.errors import ConfigError
from conformance.incell.records import RecordError
from conformance.results import Problem, read, read_records, write_json, write_records
from tests.builders import cell, line, record, tree, write_cell, write_plan

HOSTILE = "</script><script>alert(1)</script>\x1b[31m\u2028\x00'\"`|\u202e ünï"


def test_equal_objects_give_equal_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": [1.5, "ü"]})
    write_json(tmp_path / "b.json", {"a": [1.5, "ü"], "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert "ü".encode() in (tmp_path / "a.json").read_bytes()


def test_what_json_cannot_hold_is_written_as_text(tmp_path: Path) -> None:
    write_json(tmp_path / "odd.json", {"values": [float("nan"), float("inf"), -float("inf"), 1.0], "te\udc80xt": "a\ud800b"})
    text = (tmp_path / "odd.json").read_text("utf-8")
    strict = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert strict == {"values": ["nan", "inf", "-inf", 1.0], "te\\udc80xt": "a\\ud800b"}


def test_hostile_text_comes_back_as_it_was(tmp_path: Path) -> None:
    rows = [record("2.10.0", "init.x[a]", "wrong", reason=HOSTILE, output_tail=HOSTILE * 100)]
    write_records(tmp_path / "records.jsonl", rows)
    assert read_records(tmp_path / "records.jsonl") == (rows, [])


def test_a_reader_gets_no_lone_surrogate_and_no_nan(tmp_path: Path) -> None:
    odd = {**record("2.4.1", "init.x"), "reason": "\udc80", "observations": {"e": {"kind": "number", "value": float("nan")}}}
    (tmp_path / "records.jsonl").write_bytes(line(**odd))
    rows, problems = read_records(tmp_path / "records.jsonl")
    assert problems == []
    assert (rows[0]["reason"], rows[0]["observations"]["e"]["value"]) == ("\\udc80", "nan")


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path / "records.jsonl", [record("2.4.1", "init.x")])
    before = tree(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_records(tmp_path / "records.jsonl", [record("2.4.1", "init.y")])
    assert tree(tmp_path) == before


def test_a_record_that_breaks_the_schema_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="verdict"):
        write_records(tmp_path / "records.jsonl", [record("2.4.1", "init.x", "green")])
    assert tree(tmp_path) == {}


def test_a_truncated_last_line_costs_that_record_alone(tmp_path: Path) -> None:
    rows = [record("2.4.1", f"init.x[{index}]") for index in range(3)]
    path = tmp_path / "torch2.4.1-py3.11-cpu-linux_x86_64" / "records.jsonl"
    write_records(path, rows)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    found, problems = read_records(path)
    assert found == rows[:2]
    assert [(problem.path, problem.line) for problem in problems] == [("torch2.4.1-py3.11-cpu-linux_x86_64/records.jsonl", 3)]
    assert "cut off" in problems[0].message


def test_a_last_line_that_lacks_only_its_newline_is_whole(tmp_path: Path) -> None:
    rows = [record("2.4.1", "init.x")]
    write_records(tmp_path / "records.jsonl", rows)
    (tmp_path / "records.jsonl").write_bytes((tmp_path / "records.jsonl").read_bytes().rstrip(b"\n"))
    assert read_records(tmp_path / "records.jsonl") == (rows, [])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (b"\x00" * 50 + b"\n", "damaged"),
        (b"\xff\xfe{}\n", "damaged"),
        (b"[1]\n", "not list"),
        (b"[" * 100_000 + b"\n", "nested deeper"),
        (b'{"a":' * 101 + b"1" + b"}" * 101 + b"\n", "nested deeper"),
        (b'{"schema":1}\n', "field 'cell' is missing"),
        (line(**{**record("2.4.1", "init.x"), "schema": 2}), "schema 2 is not schema 1"),
        (line(**{**record("2.4.1", "init.x"), "duration_s": float("nan")}), "duration_s"),
        (line(**{**record("2.4.1", "init.x"), "verdict": "green" * 1000}), "..."),
        (b"1" * 5000 + b"\n", "damaged"),
    ],
)
def test_a_damaged_line_costs_itself_alone(tmp_path: Path, damage: bytes, told: str) -> None:
    first, last = (line(**record("2.4.1", f"init.{name}")) for name in "ab")
    (tmp_path / "records.jsonl").write_bytes(first + damage + last)
    rows, problems = read_records(tmp_path / "records.jsonl")
    assert [row["case"] for row in rows] == ["init.a", "init.b"]
    assert [problem.line for problem in problems] == [2]
    assert told in problems[0].message
    assert len(problems[0].message) < 400


def test_equal_repetitions_are_dropped_and_different_ones_told(tmp_path: Path) -> None:
    good, other = record("2.4.1", "init.x"), record("2.4.1", "init.x", "wrong")
    (tmp_path / "records.jsonl").write_bytes(line(**good) + line(**good) + line(**other))
    rows, problems = read_records(tmp_path / "records.jsonl")
    assert rows == [good]
    assert [problem.line for problem in problems] == [3]
    assert "different record of init.x attempt 1" in problems[0].message


def test_cells_come_in_the_order_of_their_releases(tmp_path: Path) -> None:
    for release in ("2.10.0", "2.1.2", "2.9.0", "2.11.0"):
        write_cell(tmp_path, cell(release), [record(release, "init.x")])
    assert [each.cell.torch for each in read(tmp_path).cells] == ["2.1.2", "2.9.0", "2.10.0", "2.11.0"]


def test_a_collected_case_without_record_is_missing(tmp_path: Path) -> None:
    folder = write_cell(tmp_path, cell("2.4.1"), [record("2.4.1", "init.x"), record("2.4.1", "init.y", subject="gpt", environment="hf")])
    write_records(folder / "records.jsonl", [record("2.4.1", "init.x")])
    (hole,) = [row for row in read(tmp_path).cells[0].records if row["verdict"] == "missing"]
    assert (hole["case"], hole["subject"], hole["environment"], hole["stage"]) == ("init.y", "gpt", "hf", "run")


def test_a_file_that_was_never_collected_is_missing(tmp_path: Path) -> None:
    folder = write_cell(tmp_path, cell("2.4.1"), [])
    write_json(folder / "collected.json", {"cases": [], "files": ["init.inits", {"case": "trace.masks"}]})
    holes = read(tmp_path).cells[0].records
    assert [(row["case"], row["verdict"], row["stage"]) for row in holes] == [
        ("init.inits", "missing", "collect"),
        ("trace.masks", "missing", "collect"),
    ]


def test_a_planned_cell_that_left_nothing_is_missing_file_by_file(tmp_path: Path) -> None:
    write_plan(tmp_path, [cell("2.4.1"), cell("2.10.0")], ["init.inits", "trace.masks"])
    write_cell(tmp_path, cell("2.4.1"), [record("2.4.1", "init.x")])
    (tmp_path / "results" / str(cell("2.4.1")) / "collected.json").unlink()
    here, gone = read(tmp_path).cells
    assert [(row["case"], row["verdict"]) for row in here.records] == [
        ("init.x", "pass"),
        ("init.inits", "missing"),
        ("trace.masks", "missing"),
    ]
    assert [(row["case"], row["verdict"], row["stage"]) for row in gone.records] == [
        ("init.inits", "missing", "collect"),
        ("trace.masks", "missing", "collect"),
    ]


def test_a_failed_install_has_its_record_and_no_second_one(tmp_path: Path) -> None:
    write_plan(tmp_path, [cell("2.4.1")])
    folder = tmp_path / "results" / str(cell("2.4.1"))
    write_records(folder / "records.jsonl", [record("2.4.1", "init.inits", "error", stage="install")])
    assert [row["verdict"] for row in read(tmp_path).cells[0].records] == ["error"]


def test_damaged_tables_are_told_and_the_records_stay(tmp_path: Path) -> None:
    folder = write_cell(tmp_path, cell("2.4.1"), [record("2.4.1", "init.x")])
    (folder / "environment.json").write_text("{")
    write_json(folder / "collected.json", {"schema": 7, "cases": []})
    found = read(tmp_path)
    assert (found.cells[0].environment, [row["case"] for row in found.cells[0].records]) == ({}, ["init.x"])
    assert [problem.path for problem in found.all_problems()] == [
        f"{cell('2.4.1')}/collected.json",
        f"{cell('2.4.1')}/environment.json",
    ]
    assert "schema 7" in found.all_problems()[0].message
    assert all(str(tmp_path) not in str(problem) for problem in found.all_problems())


def test_records_of_another_cell_are_told_and_left_out(tmp_path: Path) -> None:
    folder = write_cell(tmp_path, cell("2.4.1"), [record("2.4.1", "init.x")])
    write_records(folder / "records.jsonl", [record("2.4.1", "init.x"), record("2.10.0", "init.x")])
    found = read(tmp_path)
    assert len(found.cells[0].records) == 1
    assert "another cell" in found.all_problems()[0].message


def test_strange_folders_and_plan_entries_are_told(tmp_path: Path) -> None:
    write_plan(tmp_path, [cell("2.4.1")])
    write_json(tmp_path / "plan.json", {"cells": [{"cell": "no cell"}, 7, {"cell": str(cell("2.4.1"))}], "files": "none"})
    (tmp_path / "results" / "strange").mkdir(parents=True)
    found = read(tmp_path)
    assert [str(each.cell) for each in found.cells] == [str(cell("2.4.1"))]
    assert [problem.path for problem in found.problems] == ["plan.json", "results"]


def test_the_named_cells_alone_are_read(tmp_path: Path) -> None:
    write_plan(tmp_path, [cell("2.4.1"), cell("2.10.0")])
    assert [each.cell.torch for each in read(tmp_path, {str(cell("2.10.0"))}).cells] == ["2.10.0"]


def test_no_folder_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder of results"):
        read(tmp_path / "nowhere")


def test_the_worst_attempt_speaks_for_its_case(tmp_path: Path) -> None:
    rows = [record("2.4.1", "init.x"), record("2.4.1", "init.x", "wrong", attempt=2), record("2.4.1", "init.x", "raises", attempt=3)]
    write_cell(tmp_path, cell("2.4.1"), rows)
    assert read(tmp_path).cells[0].outcomes()["init.x"]["attempt"] == 2


@pytest.mark.parametrize("facts", [{}, {"torch": 3}, {"torch": {"version": None}}, {"torch": {"version": ["2.4"]}}])
def test_unknown_facts_are_empty_text(tmp_path: Path, facts: dict[str, Any]) -> None:
    folder = write_cell(tmp_path, cell("2.4.1"), [])
    write_json(folder / "environment.json", facts)
    assert read(tmp_path).cells[0].fact("torch", "version") == ""


def test_problems_name_file_and_line() -> None:
    assert str(Problem("a/records.jsonl", 3, "bad")) == "a/records.jsonl:3: bad"
    assert str(Problem("plan.json", 0, "bad")) == "plan.json: bad"
    assert artifacts.encode({"b": 1, "a": 2}) == b'{"a":2,"b":1}'


def test_controls_stay_out_of_the_outcomes_and_are_off_when_they_never_came(tmp_path: Path) -> None:
    rows = [record("2.4.1", "init.x"), record("2.4.1", "control.must_pass"), record("2.4.1", "control.must_raise", "raises")]
    folder = write_cell(tmp_path, cell("2.4.1"), rows)
    write_records(folder / "records.jsonl", rows[:1])
    write_records(folder / "controls.jsonl", rows[1:])
    (whole,) = read(tmp_path).cells
    assert (list(whole.outcomes()), whole.controls_off, len(whole.controls)) == (["init.x"], [], 2)
    write_records(folder / "controls.jsonl", rows[1:2])
    (torn,) = read(tmp_path).cells
    assert (list(torn.outcomes()), torn.controls_off) == (["init.x"], ["control.must_raise"])
