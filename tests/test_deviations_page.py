"""The page of deviations: what is one fault, and what it is called."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.columns import groups
from conformance.expectations import parse
from conformance.report.deviations import Kind, kinds
from tests.builders import Record, cell, record, result
from tests.pages import Page, site
from tests.test_expectations import entry


def blame(line: int, source: str = "assert count == 0", file: str = "<cases>/init/test_x.py") -> dict[str, Any]:
    return {"file": file, "line": line, "source": source}


def kinds_of(*records: Record) -> list[Kind]:
    return kinds(groups(result((cell("2.9.1"), list(records)))), [])


def test_one_shape_at_two_places_is_two_faults() -> None:
    first = record("2.9.1", "init.x", "wrong", reason="assert 402 == 0", blame=blame(47))
    other = record("2.9.1", "compile.y", "wrong", reason="assert 3 == 2", blame=blame(9, "assert graphs == 2", "<cases>/compile/test_y.py"))
    assert [(each.reason, [struck.case for struck in each.struck]) for each in kinds_of(first, other)] == [
        ("assert 3 == 2", ["compile.y"]),
        ("assert 402 == 0", ["init.x"]),
    ]


@pytest.mark.parametrize(
    ("verdict", "functions", "lines", "faults"),
    [
        ("wrong", ("init.x[a]", "init.x[b]"), (47, 48), 1),  # the file grew between the two: the line is the same
        ("wrong", ("init.x", "init.y"), (47, 60), 2),  # the same words in two case functions ask two things
        ("raises", ("init.x", "init.y"), (24, 24), 1),  # both came to the helper that raised
    ],
)
def test_a_fault_is_a_line_by_its_text_and_a_wrong_answer_a_case_function(
    verdict: str, functions: tuple[str, str], lines: tuple[int, int], faults: int
) -> None:
    made = [
        record("2.9.1", case, verdict, reason=f"assert {line} == 0", blame=blame(line)) for case, line in zip(functions, lines, strict=True)
    ]
    assert len(kinds_of(*made)) == faults


def test_what_two_expectations_explain_is_two_faults() -> None:
    entries = parse(entry(case='"init.x[a]"', reason='"of a"') + entry(case='"init.x[b]"', reason='"of b"'), "e.toml")
    made = [record("2.9.1", f"init.x[{each}]", "wrong", reason="differs", blame=blame(47)) for each in "abc"]
    found = kinds(groups(result((cell("2.9.1"), made))), entries)
    assert [(each.struck[0].case, each.entry.reason if each.entry else "", each.unexpected) for each in found] == [
        ("init.x[c]", "", 1),
        ("init.x[a]", "of a", 0),
        ("init.x[b]", "of b", 0),
    ]


def test_what_fell_back_is_told_by_its_operator() -> None:
    fell = {"mps.op[a]": "aten::pool2d", "mps.op[b]": "aten::pool3d", "init.q": "aten::pool3d"}
    made = [record("2.9.1", case, "unexercised", reason=f"fell back to the CPU: {name}") for case, name in fell.items()]
    found = {each.reason: [struck.case for struck in each.struck] for each in kinds_of(*made)}
    assert found == {"fell back to the CPU: aten::pool2d": ["mps.op[a]"], "fell back to the CPU: aten::pool3d": ["init.q", "mps.op[b]"]}


def test_a_bare_assertion_is_told_with_what_the_case_asks_and_each_case_with_its_own_words() -> None:
    made = [record("2.9.1", f"init.x[{each}]", "wrong", reason=f"assert {each} == 0", blame=blame(47)) for each in (402, 7)]
    found = result((cell("2.9.1"), made), titles={"init.x[402]": "A number is what it was", "init.x[7]": "A number is what it was"})
    html = site(found)["deviations.html"]
    assert "wrong A number is what it was assert 402 == 0 2 results" in Page(html).words
    assert "init.x[7] on torch ==2.9.1, cpu · linux_x86_64 assert 7 == 0" in Page(html).words
    untitled = site(result((cell("2.9.1"), made)))["deviations.html"]
    assert "wrong init.x assert 402 == 0" in Page(untitled).words
