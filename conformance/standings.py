"""Standings: how each expectation stands against what was measured."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from packaging.version import Version

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.compare import ranges
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.results import CellResult, ResultSet
from conformance.selectors import expand_braces, matches


@dataclass(frozen=True)
class Standing:
    """One entry beside the records that it speaks of, worst attempts only.

    `holds` are the releases where it covers a record, `passes` those where its case passes instead, `broken` says whether a passing
    record breaks its bound; `askable` says whether anything was measured that the entry could have matched.
    """

    entry: Expectation
    covered: list[Record] = field(default_factory=list)
    holds: list[Version] = field(default_factory=list)
    passes: list[Version] = field(default_factory=list)
    broken: bool = False
    askable: bool = True

    @property
    def unmatched(self) -> bool:
        """Whether the entry could have matched something, and did not."""
        return self.askable and not self.covered and not self.passes and not self.broken and not self.entry.varies

    @property
    def spent(self) -> bool:
        """Whether nothing is left of what the entry says: it may go."""
        return self.unmatched or bool(self.passes and not self.holds)

    @property
    def tighter(self) -> float | None:
        """The bound that every covered record keeps, where that is better than the entry's; None else.

        Whole numbers only: a measured error never meets its bound to the last digit, and a bound with slack is no mistake.
        """
        bound = self.entry.observation
        values = [value for value in map(bound.value, self.covered) if value is not None] if bound else []
        if not bound or not values or not all(number.is_integer() for number in (bound.bound, *values)):
            return None
        worst = max(values) if bound.better == "lower" else min(values)
        return None if worst == bound.bound else worst

    def narrowed(self) -> str:
        """The entry's specifier without the releases where its case passes, for its `torch` key.

        Where every newer release passes it ends there; other releases that pass are left out one by one, and what was not measured stays.
        """
        seen = [*self.holds, *self.passes]
        newer = [version for version in self.passes if version > self.holds[-1]]
        others = [version for version in self.passes if version < self.holds[-1]]
        ends = [f"<{_named(newer[0], seen).removesuffix('.*')}"] if newer else []
        kept = [str(part) for part in self.entry.torch if not (newer and part.operator in ("<", "<="))]
        return ",".join([*sorted(kept), *ends, *(f"!={_named(version, seen)}" for version in others)])

    def overdue(self, today: date) -> bool:
        """Whether its review date lies before `today`."""
        return self.entry.review < today


def _named(version: Version, seen: Sequence[Version]) -> str:
    """`2.10.*` where all that was seen of the minor is this release, else `2.10.1`."""
    return ranges([version], seen)[0].removeprefix("==")


class Outcomes:
    """One cell's worst attempts by case, and the families that its results can be asked about.

    Not every family is planned in every cell. A published column answers for no family as a whole: it may be older than a case.
    """

    def __init__(self, cell: CellResult, found: Mapping[str, Record]) -> None:
        self.cell = cell.cell
        self.found = found
        self.families = {record["family"] for record in found.values()} if cell.publication is None else set()


def standings(result: ResultSet, expectations: Sequence[Expectation]) -> list[Standing]:
    """The standing of each entry, in their order, against the cells that count."""
    outcomes = [Outcomes(cell, cell.outcomes()) for cell in result.judged()]
    cases = list(dict.fromkeys(case for each in outcomes for case in each.found))
    families = _planned_families(result)
    return [_standing(entry, outcomes, cases, _askable(entry, result, families)) for entry in expectations]


def _standing(entry: Expectation, outcomes: Sequence[Outcomes], cases: Sequence[str], askable: bool) -> Standing:
    covered: list[Record] = []
    seen: dict[tuple[Version, str], set[str]] = defaultdict(set)
    asked = broken = False
    mine = [case for case in cases if matches(entry.case, case)]
    families = _families(entry)
    for each in outcomes:
        if not entry.in_range(each.cell):
            continue
        asked = asked or (bool(each.families) and families <= each.families)
        for record in (each.found[case] for case in mine if case in each.found):
            state = "holds" if entry.covers(record) else "passes" if _passes(entry, record) else "other"
            seen[each.cell.version, each.cell.device].add(state)
            covered += [record] if state == "holds" else []
            broken = broken or (record["verdict"] == entry.verdict.value and state == "other")
    holds = sorted({version for (version, _), states in seen.items() if "holds" in states})
    passes = sorted({version for (version, _), states in seen.items() if states == {"passes"}} - set(holds))
    return Standing(entry, covered, holds, passes, broken, askable and asked)


def _passes(entry: Expectation, record: Record) -> bool:
    return not entry.varies and entry.verdict is not Verdict.PASS and record["verdict"] == Verdict.PASS.value


def _planned_families(result: ResultSet) -> set[str]:
    listed = (result.plan or {}).get("files")
    if isinstance(listed, list):
        return {str(entry.get("family")) for entry in listed if isinstance(entry, dict)}
    return {record["family"] for cell in result.cells for record in cell.records}


def _askable(entry: Expectation, result: ResultSet, families: set[str]) -> bool:
    """Whether this selection of cases could have held the entry's: not when only some cases, or other families, were selected."""
    if (result.plan or {}).get("selected_cases"):
        return False
    if not _families(entry) <= families:
        return False
    left_out = {case for cell in result.cells for case in _left_out(cell)}
    return not any(matches(entry.case, case) for case in left_out)


def _families(entry: Expectation) -> set[str]:
    """The families that the entry's cases belong to; empty where its pattern leaves any of them open."""
    found = [re.match(r"([a-z0-9_]+)\.", one) for one in expand_braces(entry.case)]
    return {each.group(1) for each in found if each} if all(found) else set()


def _left_out(cell: CellResult) -> list[str]:
    """The cases that collection saw and did not plan, as those of another depth."""
    listed = cell.collected.get("left_out")
    return [case for case in listed if isinstance(case, str)] if isinstance(listed, list) else []


def uncovered(result: ResultSet, expectations: Sequence[Expectation]) -> list[tuple[Cell, Record]]:
    """Every deviation of the cells that count, worst attempts only, that no entry covers: by cell, then case."""
    return [
        (cell.cell, record)
        for cell in result.judged()
        for record in cell.outcomes().values()
        if Verdict(record["verdict"]).deviates and covering(record, expectations) is None
    ]
