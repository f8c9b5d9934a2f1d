"""matrix.json: all verdicts with their reasons, intervals and expectations, for programs. Its schema ships as data/matrix.schema.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from conformance import __version__
from conformance.artifacts import Record, encode
from conformance.columns import Column, Group
from conformance.compare import intervals, measured_range
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.reasons import blamed, exception_of

#: Version of the file. A field is added without a new version; one that changes its meaning or goes makes a new one.
SCHEMA = 1


def chunks(groups: Sequence[Group], expectations: Sequence[Expectation]) -> Iterator[bytes]:
    """The file in pieces, a line for each column and each case: equal arguments give equal bytes."""
    columns = [column for group in groups for column in group.columns]
    head = encode({"schema": SCHEMA, "tool": __version__})[:-1]
    yield head + b',"columns":['
    yield from _lines(map(_column, columns))
    yield b'],"cases":['
    yield from _lines(_cases(groups, columns, expectations))
    yield b"]}\n"


def _lines(tables: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for number, table in enumerate(tables):
        yield (b",\n" if number else b"\n") + encode(table)
    yield b"\n"


def _column(column: Column) -> dict[str, Any]:
    cell, result = column.cell, column.result
    verdicts = Counter(record["verdict"] for record in column.outcomes.values())
    days = sorted(str(record["started_at"])[:10] for record in column.outcomes.values() if record["started_at"])
    state = result.publication
    return {
        "cell": str(cell),
        "torch": cell.torch,
        "python": cell.python,
        "device": cell.device,
        "platform": cell.platform,
        "tag": cell.tag,
        "build": result.fact("torch", "version"),
        "measured": column.measured,
        "since": days[0] if days else None,
        "until": days[-1] if days else None,
        "note": column.note,
        "counts": {verdict.value: verdicts[verdict.value] for verdict in Verdict if verdicts[verdict.value]},
        "published": None if state is None else {"measured": state.measured, "held": state.held},
    }


def _cases(groups: Sequence[Group], columns: Sequence[Column], expectations: Sequence[Expectation]) -> Iterator[dict[str, Any]]:
    titles = {case: title for column in columns for case, title in column.result.titles().items()}
    for case in sorted({case for column in columns for case in column.outcomes}):
        first = next(column.outcomes[case] for column in columns if case in column.outcomes)
        yield {
            "case": case,
            "family": first["family"],
            "subject": first["subject"],
            "title": titles.get(case, ""),
            "passes": [told for group in groups for told in _interval(group, case)],
            "results": {str(column.cell): _result(column.outcomes[case], expectations) for column in columns if case in column.outcomes},
        }


def _interval(group: Group, case: str) -> Iterator[dict[str, str]]:
    verdicts = group.verdicts(case)
    if any(case in column.outcomes for column in group.columns):
        where = {"device": group.device, "platform": group.platform, "tag": group.tag}
        yield {**where, "torch": intervals(verdicts), "tested": measured_range(verdicts)}


def _result(record: Record, expectations: Sequence[Expectation]) -> dict[str, Any]:
    """What the case came to; fields that say nothing are left out."""
    entry = covering(record, expectations) if Verdict(record["verdict"]).deviates else None
    told = {
        "verdict": record["verdict"],
        "reason": record["reason"],
        "exception": exception_of(record),
        "blame": blamed(record),
        "stage": record["stage"] if record["stage"] != "run" else "",
        "numbers": _numbers(record),
        "expected": {"reason": entry.reason, "link": entry.link, "review": str(entry.review)} if entry else None,
    }
    return {name: value for name, value in told.items() if value}


def _numbers(record: Record) -> dict[str, Any]:
    """The numbers that were observed; one that is not finite as text."""
    seen = {name: each for name, each in record["observations"].items() if isinstance(each, dict) and each.get("kind") == "number"}
    return {name: each["value"] for name, each in sorted(seen.items()) if isinstance(each.get("value"), (int, float, str))}
