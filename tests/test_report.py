"""The report: its files beside the site, the table in the terminal, and that equal results give equal bytes."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.columns import groups
from conformance.gate import judge
from conformance.report import build
from conformance.report.headline import headline
from conformance.report.summary import summary
from conformance.report.terminal import show, table
from conformance.results import ResultSet
from tests.builders import cell, grid, record, result, tree
from tests.test_expectations import TODAY

GRID = {
    "init.x[a]": {"2.1.2": "pass", "2.10.0": "wrong"},
    "init.x[b]": {"2.1.2": "pass", "2.10.0": "pass"},
    "trace.y": {"2.10.0": "unsupported"},
}


def test_build_writes_all_and_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    found = grid(GRID)
    judgement = judge(found, [], TODAY)
    assert build(found, [], judgement, tmp_path / "a") == tmp_path / "a" / "site" / "index.html"
    shuffled = ResultSet(
        [replace(each, records=each.records[::-1], environment=dict(reversed(each.environment.items()))) for each in found.cells]
    )
    build(shuffled, [], judgement, tmp_path / "b")
    build(found, [], judgement, tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    with (tmp_path / "a" / "matrix.csv").open(newline="") as stream:
        assert [row["torch"] for row in csv.DictReader(stream)] == ["2.1.2", "2.1.2", "2.10.0", "2.10.0", "2.10.0"]
    assert json.loads((tmp_path / "a" / "badge.json").read_text()) == {
        "schemaVersion": 1,
        "label": "conformance",
        "message": "2 torch releases, 1 deviating",
        "color": "red",
    }


def bits(**digests: str) -> ResultSet:
    cells = []
    for release, letters in digests.items():
        where = cell(release[1:].replace("_", "."))
        names = ["float32-trunc_normal_", "float32-normal_"]
        seen = [
            {"bits": {"kind": "tensor", "digest": letter, "dtype": "float32", "shape": [4], "stride": [1], "values": []}}
            for letter in letters
        ]
        cells.append((where, [record(where, f"init.bits[{name}]", observations=each) for name, each in zip(names, seen, strict=True)]))
    return result(*cells)


def test_what_changes_its_bits_is_said_in_the_summary() -> None:
    found = bits(v2_1_2="aa", v2_11_0="aa", v2_12_1="ba", v2_15_0="ba")
    line = "- float32 trunc_normal_ changes its bits at 2.12.1 (equal from 2.1.2 to 2.11.0)\n"
    assert line in summary(found, [], judge(found, [], TODAY))


def test_the_summary_fits_a_job_and_counts_what_it_leaves_out() -> None:
    rows = [record("2.4.1", f"init.x[{number}]", "wrong", reason=chr(97 + number % 26) * 3000) for number in range(2000)]
    found = result((cell("2.4.1"), rows))
    text = summary(found, [], judge(found, [], TODAY))
    assert len(text.encode()) < 200_000
    assert "and 1950 more: see the report" in text
    assert text.count("| ✕ wrong |") == 1 + 50


def test_the_terminal_table_breaks_at_the_width() -> None:
    found = grid({"init.x": {f"2.{minor}.0": "pass" if minor % 3 else "wrong" for minor in range(30)}})
    text = table(found, [], width=60)
    assert all(len(line) <= 60 for line in text.splitlines()[3:-1])
    assert [head for line in text.splitlines() for head in re.findall(r"\b2\.\d+\.0\b", line) if line.startswith("  ")] == [
        f"2.{n}.0" for n in range(30)
    ]
    assert "\x1b" not in text


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, painted, refused = io.StringIO(), Terminal(), Terminal()
    show(grid(GRID), [], plain)
    show(grid(GRID), [], painted)
    monkeypatch.setenv("NO_COLOR", "1")
    show(grid(GRID), [], refused)
    assert "\x1b[31;1m1✕\x1b[0m" in painted.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", painted.getvalue()) == plain.getvalue() == refused.getvalue()


@pytest.mark.parametrize(
    ("outcomes", "answer"),
    [
        ({"2.9.0": "pass", "2.10.0": "pass"}, "None of 2 results deviates."),
        ({"2.9.0": "wrong", "2.10.0": "crash"}, "2 of 2 results deviate (1 wrong, 1 crash), none of them expected."),
        ({}, "There is no result to speak of."),
    ],
)
def test_the_answer_in_a_sentence(outcomes: dict[str, str], answer: str) -> None:
    assert headline(groups(grid({"init.x": outcomes})), []).answer == answer
