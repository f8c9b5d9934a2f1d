"""The view: one result set read for all pages, its columns and a row for each case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from packaging.version import Version

from conformance.artifacts import Record
from conformance.columns import Column, Group, groups
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.gate import Judgement
from conformance.guardneeds import Way
from conformance.incell.identity import FAMILIES
from conformance.incell.verdicts import Verdict
from conformance.report.sources import CaseSource, SourceFile, case_sources
from conformance.results import ResultSet
from conformance.transitions import Transition, transitions


@dataclass(frozen=True)
class Row:
    """One case: its record in each column of the view, None where there is none, and what its docstring's first line says."""

    case: str
    family: str
    subject: str
    title: str
    records: list[Record | None]

    @cached_property
    def verdicts(self) -> frozenset[str]:
        """The verdicts that occur."""
        return frozenset(record["verdict"] for record in self.records if record is not None)

    @cached_property
    def deviates(self) -> bool:
        """Whether it deviates anywhere."""
        return any(Verdict(verdict).deviates for verdict in self.verdicts)

    @property
    def function(self) -> str:
        """The id without its parameters: what the variants of one case function share."""
        return self.case.partition("[")[0]


@dataclass(frozen=True)
class View:
    """A result set with what is known about it, the files of cases whose sources are at hand, and the guards."""

    result: ResultSet
    expectations: Sequence[Expectation]
    judgement: Judgement
    files: Sequence[SourceFile] = ()
    #: Guard -> what it does, and the ways to do without one.
    guards: Mapping[str, str] = field(default_factory=dict)
    ways: Sequence[Way] = ()

    @cached_property
    def asks_of_mps(self) -> bool:
        """Whether a case of family `mps` is in it: then there is a page of operators on MPS."""
        return any(row.family == "mps" for row in self.rows.values())

    @cached_property
    def sources(self) -> Mapping[str, CaseSource]:
        """`family.name` -> the source of that case function."""
        return case_sources(self.files)

    @cached_property
    def paths(self) -> dict[str, Path]:
        """`family.name` -> the file of that case function, where it is at hand."""
        files = {file.file_case: file.path for file in self.files}
        return {name: path for name, source in self.sources.items() if (path := files.get(source.file_case)) is not None}

    @cached_property
    def groups(self) -> list[Group]:
        """The columns by device, platform and tag."""
        return groups(self.result)

    @cached_property
    def _devices(self) -> list[str]:
        return [group.device for group in self.groups]

    def label(self, group: Group) -> str:
        """What to call a group of columns: its device, and the platform and tag too where there are several of that device."""
        return group.device if self._devices.count(group.device) == 1 else group.label

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of all groups, in order."""
        return [column for group in self.groups for column in group.columns]

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Case -> its row, in the order of families, then cases."""
        columns = self.columns
        found: dict[str, Row] = {}
        titles = {case: title for column in columns for case, title in column.result.titles().items()}
        for index, column in enumerate(columns):
            for case, record in column.outcomes.items():
                row = found.get(case)
                if row is None:
                    row = Row(case, record["family"], record["subject"] or "", titles.get(case, ""), [None] * len(columns))
                    found[case] = row
                row.records[index] = record
        order = {name: number for number, name in enumerate(FAMILIES)}
        ordered = sorted(found.values(), key=lambda row: (order.get(row.family, len(order)), row.family, row.case))
        return {row.case: row for row in ordered}

    @cached_property
    def families(self) -> dict[str, list[Row]]:
        """Family -> its rows: the project's own families in their order, then others by name."""
        return _by(self.rows.values(), "family")

    @cached_property
    def subjects(self) -> dict[str, list[Row]]:
        """Model -> the rows of the cases that ran on it, by name."""
        return dict(sorted(_by((row for row in self.rows.values() if row.subject), "subject").items()))

    @cached_property
    def releases(self) -> list[Version]:
        """The releases from which any record came, oldest first."""
        return sorted({column.version for column in self.columns if column.measured})

    @cached_property
    def starts(self) -> list[int]:
        """For each group, where its columns start among all."""
        return list(accumulate((len(group.columns) for group in self.groups), initial=0))

    def split(self, row: Row) -> Iterator[tuple[Group, list[Record | None]]]:
        """The records of a row by group of columns."""
        for group, start in zip(self.groups, self.starts, strict=False):
            yield group, row.records[start : start + len(group.columns)]

    @cached_property
    def transitions(self) -> list[tuple[Group, Transition]]:
        """What changed at each release in each group of columns, the newest release first. Cells that do not count take no part."""
        found = [(group, each) for group in self.groups for each in transitions(group.sound)]
        return sorted(found, key=lambda pair: pair[1].version, reverse=True)

    @cached_property
    def intervals(self) -> dict[object, tuple[str, str]]:
        """What is known of the intervals of a pattern of verdicts: many cases share one."""
        return {}

    @cached_property
    def _entries(self) -> dict[int, Expectation | None]:
        return {}

    def entry(self, record: Record) -> Expectation | None:
        """The expectation that covers a deviating record, None for one that deviates unexpectedly or not at all."""
        if not Verdict(record["verdict"]).deviates:
            return None
        known = self._entries
        if id(record) not in known:
            known[id(record)] = covering(record, self.expectations)
        return known[id(record)]


def _by(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(getattr(row, name), []).append(row)
    return found
