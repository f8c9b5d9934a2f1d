"""The grids of the page: the counts of each family in each cell, and every case's verdict in every cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from packaging.version import Version

from conformance.artifacts import Record
from conformance.columns import Column, Group
from conformance.compare import intervals, measured_range
from conformance.expectations import Expectation
from conformance.frame import blamed, exception_of
from conformance.incell.identity import FAMILIES
from conformance.incell.verdicts import Verdict
from conformance.plaintext import visible
from conformance.standings import covering

#: A sign for each verdict, so that shape tells it where colour does not.
SIGNS = {
    Verdict.WRONG: "✕",
    Verdict.CRASH: "▲",
    Verdict.RAISES: "!",
    Verdict.TIMEOUT: "◷",
    Verdict.UNEXERCISED: "○",
    Verdict.ERROR: "◆",
    Verdict.MISSING: "?",
    Verdict.PASS: "✓",
    Verdict.UNSUPPORTED: "\N{EN DASH}",
}
#: Characters of a reason that the table shows; matrix.csv has the whole.
SHOWN = 600

_PLAIN = Markup('<td class="{0}"><span aria-hidden="true">{1}</span> {0}</td>')
_FOLDED = Markup('<td class="{0}"><details><summary><span aria-hidden="true">{1}</span> {0}{2}</summary><div>{3}</div></details></td>')
_EXPECTED = Markup('<p class="excuse"><b>Expected:</b> {0} <a href="{1}" rel="noopener noreferrer">{1}</a>, review {2}</p>')
_EMPTY = Markup("<td></td>")


@dataclass(frozen=True)
class Row:
    """One case: its cells as markup, where it passes in each group, and whether it deviates or varies."""

    case: str
    title: str
    intervals: list[tuple[str, str, str]]
    cells: list[Markup]
    deviates: bool
    varies: bool


@dataclass(frozen=True)
class Count:
    """The verdicts of one family in one cell; `files` counts the whole files among them, whose number of cases nobody knows."""

    verdicts: list[tuple[Verdict, int]]
    files: int


def families(groups: Sequence[Group]) -> list[str]:
    """The families that have a record: the project's own in their order, then others by name."""
    found = {record["family"] for group in groups for column in group.columns for record in column.outcomes.values()}
    return [name for name in FAMILIES if name in found] + sorted(found - set(FAMILIES))


def counts(groups: Sequence[Group], family: str) -> list[Count | None]:
    """For each column, the counts of a family: None where the column was not measured."""
    return [count(column, family) if column.measured else None for group in groups for column in group.columns]


def count(column: Column, family: str) -> Count:
    """The counts of a family in one column."""
    records = [record for record in column.outcomes.values() if record["family"] == family]
    counted = Counter(Verdict(record["verdict"]) for record in records)
    files = sum(record["case"] in column.files for record in records)
    return Count([(verdict, counted[verdict]) for verdict in Verdict if counted[verdict]], files)


def rows(groups: Sequence[Group], family: str, expectations: Sequence[Expectation]) -> Iterator[Row]:
    """The rows of one family's table: by case, its cells in the order of columns."""
    columns = [column for group in groups for column in group.columns]
    devices = [group.device for group in groups]
    titles = {case: title for column in columns for case, title in column.result.titles().items()}
    cases = {case for column in columns for case, record in column.outcomes.items() if record["family"] == family}
    for case in sorted(cases):
        found = [column.outcomes.get(case) for column in columns]
        verdicts = {record["verdict"] for record in found if record is not None}
        yield Row(
            case,
            titles.get(case, ""),
            [
                (group.device if devices.count(group.device) == 1 else group.label, *_interval(group, seen))
                for group in groups
                if any((seen := group.verdicts(case)).values())
            ],
            [_cell(record, expectations) if record is not None else _EMPTY for record in found],
            any(Verdict(verdict).deviates for verdict in verdicts),
            len(verdicts) > 1,
        )


def _interval(group: Group, seen: Mapping[Version, Verdict | None]) -> tuple[str, str]:
    """Where a case passes in a group, and what that rests on where it is not what the whole group was tested on."""
    whole = measured_range({column.version: Verdict.PASS if column.measured else None for column in group.columns})
    tested = measured_range(seen)
    passes = {"none": "passes nowhere", "unknown": "not known"}.get(intervals(seen), f"passes {intervals(seen)}")
    return passes, "" if tested == whole else tested


def _cell(record: Record, expectations: Sequence[Expectation]) -> Markup:
    verdict = Verdict(record["verdict"])
    entry = covering(record, expectations) if verdict.deviates else None
    told = list(_told(record, entry))
    if not told:
        return _PLAIN.format(verdict.value, SIGNS[verdict])
    mark = Markup(' <abbr title="expected">e</abbr>') if entry else ""
    return _FOLDED.format(verdict.value, SIGNS[verdict], mark, Markup().join(told))


def _told(record: Record, entry: Expectation | None) -> Iterator[Markup]:
    """What a click shows: reason, exception, place, numbers and, beside them, what is known about it."""
    reason, exception = record["reason"], exception_of(record)
    if reason:
        yield Markup("<p>{}</p>").format(clipped(reason))
    if exception and exception not in reason:
        yield Markup("<p><code>{}</code></p>").format(clipped(exception))
    if record["blame"]:
        yield Markup("<p class=at>{}</p>").format(clipped(blamed(record)))
    if reason and record["stage"] != "run":
        yield Markup("<p class=at>stage {}</p>").format(record["stage"])
    numbers = [f"{name} = {seen['value']}" for name, seen in record["observations"].items() if _is_shown(seen)]
    if numbers:
        yield Markup("<p>{}</p>").format(clipped(", ".join(numbers)))
    if entry is not None:
        yield _EXPECTED.format(clipped(entry.reason), entry.link, entry.review)


def _is_shown(observed: object) -> bool:
    return isinstance(observed, dict) and observed.get("kind") in ("number", "text") and "value" in observed


def clipped(text: str) -> str:
    """`text` with what does not show as itself escaped, cut at SHOWN characters with a note of how many are left."""
    shown = visible(text)
    if len(shown) <= SHOWN:
        return shown
    return f"{shown[:SHOWN]}… ({len(shown) - SHOWN:,} more characters in matrix.csv)"
