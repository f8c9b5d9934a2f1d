"""The gate: what of a result set is not as expected. It alone judges."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.coverage import regressed
from conformance.errors import IncompleteRecordsError
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.results import ResultSet
from conformance.standings import Standing, standings, uncovered

#: Kinds of finding that make the records incomplete: exit code 5.
INCOMPLETE = frozenset({"missing", "conflict", "damaged", "empty"})
_ORDER = (
    "conflict",
    "empty",
    "damaged",
    "missing",
    "control",
    "wrong",
    "crash",
    "raises",
    "timeout",
    "unexercised",
    "error",
    "regression",
    "stale",
    "unmatched",
    "overdue",
)


@dataclass(frozen=True)
class Finding:
    """One reason to be red: `kind` (a verdict, or another word of the gate), what, where, and what to do about it."""

    kind: str
    what: str
    where: str
    action: str
    records: list[Record] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        return one_line(f"{self.kind}: {self.what} [{self.where}]", 600)


@dataclass(frozen=True)
class Judgement:
    """All findings, the gravest first, and the cells that were not judged because their device did not answer the probe."""

    findings: list[Finding] = field(default_factory=list)
    grey: list[str] = field(default_factory=list)
    judged: int = 0

    @property
    def exit_code(self) -> int:
        """0 when all is as expected, 5 when records are incomplete, else 1."""
        if any(finding.kind in INCOMPLETE for finding in self.findings):
            return IncompleteRecordsError.exit_code
        return 1 if self.findings else 0

    def lines(self, limit: int = 100) -> list[str]:
        """The judgement for a terminal: each finding with what to do, at most `limit` of them, and a last line that sums up."""
        told: list[str] = []
        for finding in self.findings[:limit]:
            told += [str(finding), f"    {one_line(finding.action, 600)}"]
        if len(self.findings) > limit:
            told.append(f"... and {len(self.findings) - limit} more findings: see matrix.csv in the report")
        told += [f"not judged: {cell}, its device did not answer the probe" for cell in self.grey]
        verdict = {0: "as expected", 1: "not as expected", 5: "records are incomplete"}[self.exit_code]
        cells, found = "cell" if self.judged == 1 else "cells", "finding" if len(self.findings) == 1 else "findings"
        return [*told, f"{verdict}: {self.judged} {cells} judged, {len(self.findings)} {found}"]


def judge(result: ResultSet, expectations: Sequence[Expectation], today: date) -> Judgement:
    """Whether `result` is as expected; pure: equal arguments give an equal judgement."""
    findings = [
        *_unusable(result),
        *_deviations(result, expectations),
        *_regressions(result, expectations),
        *(finding for each in standings(result, expectations) for finding in _stale(each, today)),
    ]
    findings.sort(key=lambda finding: _ORDER.index(finding.kind))
    grey = [str(cell.cell) for cell in result.cells if cell.grey]
    return Judgement(findings, grey, sum(1 for _ in result.judged()))


def _unusable(result: ResultSet) -> Iterator[Finding]:
    """What keeps the results from being judged at all."""
    for cell, variants in result.conflicts.items():
        what = f"{len(variants)} different results for one cell"
        action = f"compare the folders in conflicts/{cell}, delete those that are wrong, and run: conformance collect"
        yield Finding("conflict", what, cell, action)
    if not result.conflicts and not any(cell.records for cell in result.cells):
        yield Finding(
            "empty",
            "nothing was measured",
            "results",
            "run: nox -s matrix; the published columns are judged by: conformance gate reports/published",
        )
    for problem in result.all_problems():
        place = f"{problem.path}:{problem.line}" if problem.line else problem.path
        yield Finding("damaged", problem.message, place, "run the cell again with --fresh, or copy its results again from their machine")
    for each in result.cells:
        if each.controls_off and not each.grey:
            hidden = sum(Verdict(record["verdict"]).deviates for record in each.outcomes().values())
            what = (
                f"the control cases {', '.join(each.controls_off)} did not come out as they must; {hidden} deviations here are not judged"
            )
            action = f"the harness cannot be trusted in this cell; see: conformance show {each.cell}"
            yield Finding("control", what, str(each.cell), action)


def _deviations(result: ResultSet, expectations: Sequence[Expectation]) -> Iterator[Finding]:
    """One finding for each case, verdict and device that deviate without an expectation."""
    groups: dict[tuple[str, str, str], list[tuple[Cell, Record]]] = defaultdict(list)
    for cell, record in uncovered(result, expectations):
        groups[record["verdict"], record["case"], cell.device].append((cell, record))
    for (verdict, case, device), found in sorted(groups.items()):
        reasons = sorted({record["reason"] for _, record in found if record["reason"]})
        more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
        what = f"{case}: {one_line(reasons[0], 200)}{more}" if reasons else case
        where = f"{device}, torch {', '.join(dict.fromkeys(cell.torch for cell, _ in found))}"
        yield Finding(verdict, what, where, _remedy(verdict, [str(cell) for cell, _ in found]), [record for _, record in found])


def _remedy(verdict: str, cells: list[str]) -> str:
    if verdict == Verdict.MISSING.value:
        return f"run it again: conformance run --only {cells[0]}" + (f", and {len(cells) - 1} more cells" if len(cells) > 1 else "")
    if verdict == Verdict.ERROR.value:
        return f"this says nothing about torch: mend the environment or the case, then: conformance run --only {cells[0]}"
    return 'mend it, or record why: conformance expect --update --reason "..." --link https://... --review YYYY-MM-DD'


def _regressions(result: ResultSet, expectations: Sequence[Expectation]) -> Iterator[Finding]:
    for cell in result.judged():
        for record in cell.outcomes().values():
            entry = regressed(record, expectations)
            if entry is not None and entry.observation is not None:
                bound, value = entry.observation, entry.observation.value(record)
                seen = "was not observed" if value is None else f"is {value:g}"
                what = f"{record['case']}: {bound.name} {seen}, the bound is {bound.bound:g} ({bound.better} is better)"
                action = f"mend it, or move the bound in entry {entry.number} of the expectations"
                yield Finding("regression", what, str(cell.cell), action, [record])


def _tighten(entry: Expectation) -> str:
    return f"conformance expect --tighten --case {shlex.quote(entry.case)}"


def _stale(each: Standing, today: date) -> Iterator[Finding]:
    """What is wrong with an entry itself."""
    entry = each.entry
    where = f"expectations, entry {entry.number}"
    if each.passes and not each.holds:
        yield Finding(
            "stale", f"{entry.case} is expected to be {entry.verdict}, and passes", where, "take it out: conformance expect --prune"
        )
    elif each.passes:
        releases = ", ".join(map(str, each.passes))
        what = f"{entry.case} is expected to be {entry.verdict}, and passes on torch {releases}"
        yield Finding("stale", what, where, f'narrow it to torch = "{each.narrowed()}": {_tighten(entry)}')
    if each.unmatched:
        yield Finding("unmatched", f"nothing that was measured is as {entry} says", where, "take it out: conformance expect --prune")
    if each.tighter is not None and entry.observation is not None:
        what = (
            f"{entry.case}: {entry.observation.name} is no worse than {each.tighter:g} everywhere, the bound is {entry.observation.bound:g}"
        )
        yield Finding("stale", what, where, f"move the bound to {each.tighter:g}: {_tighten(entry)}")
    if each.overdue(today):
        yield Finding(
            "overdue", f"{entry.case}: its review date {entry.review} is past", where, f"look at {entry.link}, then set a new review date"
        )
