"""Columns of the tables: cells side by side by device and platform, and what was not measured among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from packaging.version import Version

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.incell.verdicts import Verdict, worst
from conformance.results import CellResult, ResultSet


@dataclass(frozen=True)
class Column:
    """One cell of the result set: its outcomes, and why it does not count where it does not."""

    result: CellResult
    outcomes: Mapping[str, Record]
    note: str = ""

    @property
    def cell(self) -> Cell:
        """The cell that the column shows."""
        return self.result.cell

    @cached_property
    def version(self) -> Version:
        """The release of the cell."""
        return self.cell.version

    @cached_property
    def files(self) -> frozenset[str]:
        """The outcomes that stand for whole case files, whose cases were never collected."""
        return frozenset(self.outcomes) - self.result.case_ids()

    @cached_property
    def measured(self) -> bool:
        """Whether any record came from it."""
        return any(record["verdict"] != Verdict.MISSING.value for record in self.outcomes.values())


@dataclass(frozen=True)
class Group:
    """Columns of one device, platform and tag, in the order of their releases."""

    device: str
    platform: str
    tag: str
    columns: list[Column] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What stands above the columns."""
        return " · ".join(part for part in (self.device, self.platform, self.tag) if part)

    @property
    def sound(self) -> Group:
        """The group without the columns that do not count: their device did not answer, or their controls are off."""
        return replace(self, columns=[each for each in self.columns if not each.result.grey and not each.result.controls_off])

    def verdicts(self, case: str) -> dict[Version, Verdict | None]:
        """Release -> the worst verdict of the case there; None where nothing is known of it: no column of that release has a record."""
        found: dict[Version, list[Verdict]] = {}
        for column in self.columns:
            record = column.outcomes.get(case)
            found.setdefault(column.version, []).extend([Verdict(record["verdict"])] if record else [])
        return {version: worst(verdicts) for version, verdicts in found.items()}


def groups(result: ResultSet) -> list[Group]:
    """The columns of a result set in their groups, in order."""
    found: dict[tuple[str, str, str], Group] = {}
    for each in result.cells:
        cell = each.cell
        group = found.setdefault((cell.device, cell.platform, cell.tag), Group(cell.device, cell.platform, cell.tag))
        group.columns.append(Column(each, each.outcomes(), _note(each, result)))
    return list(found.values())


def _note(each: CellResult, result: ResultSet) -> str:
    if str(each.cell) in result.conflicts:
        return "conflict"
    if each.grey:
        return "no device"
    if each.controls_off:
        return "controls off"
    if each.publication is not None and each.publication.is_held:
        return f"last good, of {each.publication.measured}" if each.publication.measured else "held back"
    status = each.fact("status")
    return "" if status in ("", "ok") else status
