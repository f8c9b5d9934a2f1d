"""Timelines: what one case did over the columns of one device, neighbours that agree taken together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.artifacts import Record
from conformance.columns import Column, Group
from conformance.compare import basis, between, measured_range, stated
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.reasons import blamed, generic_reason, reason_of
from conformance.report.view import Row, View

#: In place of an interval where the device, or the API there, is not there on any release.
UNSUPPORTED = Verdict.UNSUPPORTED.value


@dataclass(frozen=True)
class Span:
    """Columns side by side in which one case came to the same; no record where they have no such case or were not measured."""

    columns: list[Column]
    record: Record | None
    entry: Expectation | None

    @property
    def verdict(self) -> str:
        """The verdict in all of them; empty without a record."""
        return str(self.record["verdict"]) if self.record else ""

    @property
    def deviates(self) -> bool:
        """Whether it deviates there."""
        return bool(self.record) and Verdict(self.verdict).deviates

    @property
    def measured(self) -> bool:
        """Whether anything came from these columns."""
        return self.columns[0].measured

    @property
    def reason(self) -> str:
        """Why, in the words of the first record."""
        return reason_of(self.record) if self.record else ""

    @property
    def blame(self) -> str:
        """Where, as file:line."""
        return blamed(self.record) if self.record else ""

    @property
    def releases(self) -> str:
        """The columns in words."""
        first, last = self.columns[0].cell.torch, self.columns[-1].cell.torch
        return first if first == last else f"{first} to {last}"


@dataclass(frozen=True)
class Timeline:
    """The spans of one case in one group of columns, and the releases where it passes."""

    group: Group
    spans: list[Span]
    passes: str
    tested: str

    @property
    def known(self) -> bool:
        """Whether the group holds any record of the case."""
        return any(span.record for span in self.spans)

    @property
    def told(self) -> list[Span]:
        """The spans that have something to say beside their verdict."""
        return [span for span in self.spans if span.reason or span.entry]


def timelines(view: View, row: Row) -> Iterator[Timeline]:
    """The timeline of a case in each group of columns, in their order."""
    for group, records in view.split(row):
        passes, tested = _interval(view, group, row.case, records)
        yield Timeline(group, _spans(view, group.columns, records), passes, tested)


def passing(view: View, row: Row) -> str:
    """Where a case passes, in a line: devices that agree are named together, and none is where all do.

    Where releases between were not measured it says so.
    """
    devices: dict[tuple[str, str], list[str]] = {}
    for group, records in view.split(row):
        if any(records):
            passes, tested = _interval(view, group, row.case, records)
            holes = between(group.verdicts(row.case))
            devices.setdefault((passes, tested if holes else ""), []).append(view.label(group))
    if len(devices) == 1:
        return _resting(*next(iter(devices)))
    return "; ".join(f"{', '.join(names)} {_resting(*told)}" for told, names in devices.items())


def _resting(passes: str, tested: str) -> str:
    return f"{statement(passes)} ({tested})" if tested else statement(passes)


def statement(passes: str) -> str:
    """An interval as a statement."""
    return {"none": "passes nowhere", "unknown": "not known", UNSUPPORTED: UNSUPPORTED}.get(passes, f"passes {passes}")


def _spans(view: View, columns: list[Column], records: list[Record | None]) -> list[Span]:
    found: list[Span] = []
    last: object = None
    for column, record in zip(columns, records, strict=True):
        entry = view.entry(record) if record else None
        key = _sameness(record, entry) if record else column.measured
        if found and key == last:
            found[-1].columns.append(column)
        else:
            found.append(Span([column], record, entry))
        last = key
    return found


def _sameness(record: Record, entry: Expectation | None) -> tuple[str, str, int]:
    verdict = record["verdict"]
    cause = "" if verdict == Verdict.PASS.value else generic_reason(record)
    return verdict, cause, entry.number if entry else -1


def _interval(view: View, group: Group, case: str, records: list[Record | None]) -> tuple[str, str]:
    """Where a case passes in a group, and what that rests on where it is not what the whole group was tested on."""
    pattern = (id(group), tuple(record["verdict"] if record else None for record in records))
    known = view.intervals
    if pattern not in known:
        outcomes = group.verdicts(case)
        whole = measured_range({column.version: Verdict.PASS if column.measured else None for column in group.columns})
        tested = basis(outcomes)
        verdicts = {verdict for verdict in outcomes.values() if verdict is not None}
        told = UNSUPPORTED if verdicts == {Verdict.UNSUPPORTED} else stated(outcomes)
        known[pattern] = told, "" if tested == whole else tested
    return known[pattern]
