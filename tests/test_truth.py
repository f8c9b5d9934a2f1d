"""The cases stand for every row of the table in tests/truth, and the comparison with it can fail."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from agreement import Row, compare, outcome, rows

ROOT = Path(__file__).parent.parent

CELL = "torch2.4.1-py3.11-cpu-linux_x86_64"


def _catching() -> dict[str, set[str]]:
    """`family.name` of every case function -> the names in its `catches`."""
    found = {}
    for path in (ROOT / "cases").glob("*/test_*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                named = {node.id for each in function.decorator_list for node in ast.walk(each) if isinstance(node, ast.Name)}
                found[f"{path.parent.name}.{function.name.removeprefix('test_')}"] = named
    return found


def test_every_row_has_its_cases() -> None:
    catching = _catching()
    table = rows()
    assert len(table) == 221
    unknown = {
        case
        for row in table
        for case in row.cases
        for name, _, twin in [case.partition("~")]
        if name.partition("[")[0] not in catching or (twin and twin not in catching[name.partition("[")[0]])
    }
    assert unknown == set()
    assert [row.name for row in table if not row.cases] == []
    assert [row.name for row in table if row.differs and not row.note] == []


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["pass", "unsupported"], "pass"),
        (["unsupported", "unsupported"], "unsupported"),
        (["pass", "raises"], "fail"),
        (["pass", "timeout"], "fail"),
        (["pass", "missing"], "missing"),
        (["error"], "error"),
    ],
)
def test_outcome_of_a_row(verdicts: list[str], expected: str) -> None:
    assert outcome(verdicts) == expected


def _row(script: str = "b_x", **differs: str) -> Row:
    return Row(script, "", {"2.0.1": "fail", "2.4.1": "fail"}, ["f.case", "f.other"], "why", {"2.4.1": differs["found"]} if differs else {})


def test_agreement_and_difference() -> None:
    assert list(compare([_row()], CELL, {"f.case": "wrong", "f.other": "pass"})) == [None]
    (different,) = compare([_row()], CELL, {"f.case": "pass", "f.other": "pass"})
    assert different is not None
    assert (different.stated, different.found, different.explained) == ("fail", "pass", False)


def test_a_difference_is_explained_only_as_stated() -> None:
    (explained,) = compare([_row(found="pass")], CELL, {"f.case": "pass", "f.other": "pass"})
    (another,) = compare([_row(found="unsupported")], CELL, {"f.case": "pass", "f.other": "pass"})
    assert explained is not None
    assert another is not None
    assert (explained.explained, another.explained) == (True, False)


def test_compiling_rows_leave_the_oldest_compiler_out() -> None:
    oldest = CELL.replace("2.4.1", "2.0.1").replace("3.11", "3.10")
    assert list(compare([_row("d_x")], oldest, {})) == []
    assert len(list(compare([_row("b_x")], oldest, {}))) == 1
