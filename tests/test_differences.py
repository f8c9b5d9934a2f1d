"""What differs between two columns: worse and better apart, by cause; numbers with a direction; bits that changed."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.differences import Difference, Outcome, causes, difference, number, outcomes_of
from conformance.incell.verdicts import Verdict
from tests.builders import Record, cell, record


def column(release: str, *records: Record) -> dict[str, Outcome]:
    return outcomes_of(cell(release), {each["case"]: each for each in records})


def observed(release: str, verdict: str = "pass", **observations: Any) -> Record:
    return record(release, "compile.x", verdict, observations=observations)


def count(value: Any, better: str | None = "lower") -> dict[str, Any]:
    return {"kind": "number", "value": value, "better": better}


def between(old: Record, new: Record) -> Difference:
    return difference(column("2.9.1", old), column("2.10.0", new))


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        ("pass", "wrong", True),
        ("pass", "unsupported", True),
        ("unsupported", "wrong", True),
        ("unsupported", "pass", False),
        ("raises", "wrong", True),
        ("wrong", "crash", False),
        ("timeout", "raises", True),
        ("unexercised", "pass", False),
    ],
)
def test_a_verdict_gets_worse_or_better(old: str, new: str, worse: bool) -> None:
    found = between(record("2.9.1", "init.x", old), record("2.10.0", "init.x", new))
    assert ([c.cases for c in found.worse], [c.cases for c in found.better]) == (([["init.x"]], []) if worse else ([], [["init.x"]]))
    assert found.regressed is worse
    assert found.compared == 1


@pytest.mark.parametrize("verdict", ["error", "missing"])
def test_what_is_not_known_is_not_compared(verdict: str) -> None:
    found = between(record("2.9.1", "init.x"), record("2.10.0", "init.x", verdict))
    assert (found.unknown, found.empty, found.compared) == (["init.x"], True, 0)


def test_cases_of_one_column_only() -> None:
    found = difference(column("2.9.1", record("2.9.1", "init.old")), column("2.10.0", record("2.10.0", "init.new", "wrong")))
    assert (found.vanished, found.appeared, found.regressed) == (["init.old"], ["init.new"], False)


def failing(case: str, reason: str, line: int = 3, verdict: str = "raises") -> Record:
    return record("2.10.0", case, verdict, reason=reason, blame={"file": "a.py", "line": line, "source": "cumsum(x)"})


def test_a_cause_is_verdicts_line_and_reason_without_its_numbers() -> None:
    new = [
        failing("mps.b", "no kernel for 3 dims"),
        failing("mps.a", "no kernel for 4 dims"),
        failing("mps.c", "no kernel for 4 dims", line=9),
        failing("mps.d", "other"),
        failing("mps.e", "assert 1 == 2", verdict="wrong"),
    ]
    found = difference(column("2.9.1", *(record("2.9.1", each["case"]) for each in new)), column("2.10.0", *new))
    assert [(cause.after, cause.cases) for cause in found.worse] == [
        (Verdict.WRONG, ["mps.e"]),
        (Verdict.RAISES, ["mps.a", "mps.b"]),
        (Verdict.RAISES, ["mps.c"]),
        (Verdict.RAISES, ["mps.d"]),
    ]
    cause = found.worse[1]
    assert (cause.reason, cause.blame, cause.source) == ("no kernel for 4 dims", "a.py:3", "cumsum(x)")


def test_what_got_better_is_told_by_what_it_was_cured_of() -> None:
    found = difference(column("2.9.1", failing("mps.a", "no kernel")), column("2.10.0", record("2.10.0", "mps.a")))
    (cause,) = found.better
    assert (cause.before, cause.after, cause.reason, cause.blame) == (Verdict.RAISES, Verdict.PASS, "no kernel", "a.py:3")


def test_no_moves_have_no_causes() -> None:
    assert causes([]) == []
    assert difference({}, {}) == Difference()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (count(3), count(4), ["compile.x: graphs 3 -> 4 (lower is better)"]),
        (count(4, "higher"), count(3, "higher"), ["compile.x: graphs 4 -> 3 (higher is better)"]),
        (count(4), count(3), ["compile.x: graphs 4 -> 3 (lower is better)"]),
        (count(3), count(3), []),
        (count(3, None), count(9, None), []),
        (count(0.1234), count(0.1235), []),
        (count(0.12), count(0.24), ["compile.x: graphs 0.12 -> 0.24 (lower is better)"]),
        (count(0.5), count("inf"), ["compile.x: graphs 0.5 -> inf (lower is better)"]),
        (count(3), {"kind": "text", "value": "4", "better": "lower"}, []),
        (count(3), 7, []),
        (count(3), count([1]), []),
    ],
)
def test_numbers_with_a_direction(old: Any, new: Any, told: list[str]) -> None:
    found = between(observed("2.9.1", graphs=old), observed("2.10.0", graphs=new))
    assert [str(move) for move in found.numbers] == told


def test_a_number_that_gets_worse_is_a_regression_and_one_that_gets_better_is_none() -> None:
    assert between(observed("2.9.1", graphs=count(1)), observed("2.10.0", graphs=count(2))).regressed
    assert not between(observed("2.9.1", graphs=count(2)), observed("2.10.0", graphs=count(1))).regressed


def test_where_the_verdict_moves_its_numbers_are_no_news() -> None:
    found = between(observed("2.9.1", "wrong", graphs=count(1)), observed("2.10.0", "pass", graphs=count(2)))
    assert (found.numbers, found.regressed) == ([], False)


def test_of_a_case_that_does_not_pass_no_number_is_worse() -> None:
    few, many = observed("2.9.1", "wrong", graphs=count(1)), observed("2.10.0", "wrong", graphs=count(2))
    assert (between(few, many).numbers, between(few, many).regressed) == ([], False)
    assert [move.worse for move in between(many, few).numbers] == [False]


def test_bits_that_differ_are_neither_good_nor_bad() -> None:
    bits = [{"kind": "tensor", "digest": letter, "dtype": "float32", "shape": [1], "stride": [1], "values": [1.0]} for letter in "ab"]
    found = between(observed("2.9.1", bits=bits[0], same=bits[0]), observed("2.10.0", bits=bits[1], same=bits[0]))
    assert [(move.case, move.name) for move in found.bits] == [("compile.x", "bits")]
    assert (found.regressed, found.empty) == (False, False)


@pytest.mark.parametrize("value", [True, None, "many", [], {}])
def test_what_is_no_number_is_none(value: Any) -> None:
    assert number(observed("2.9.1", x=count(value)), "x") is None
    assert number(observed("2.9.1", x=value), "x") is None
    assert number(observed("2.9.1"), "x") is None
