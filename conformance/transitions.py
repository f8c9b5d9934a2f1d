"""A case's way over the releases of one device: what changed at each release, and the neighbours on both sides of every break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from packaging.version import Version

from conformance.columns import Group
from conformance.differences import Cause, Difference, Move, Outcome, causes, difference, worst_of
from conformance.incell.verdicts import Verdict

#: Case -> its outcomes that say something about torch, one a release, oldest first.
Histories = dict[str, list[Outcome]]


@dataclass(frozen=True)
class Transition:
    """What changed at one release, compared with the one before it, `previous`, in what both have a record of.

    `earlier` are moves against a release before that one, which says nothing of the case: where in between they came is not known.
    """

    version: Version
    previous: Version
    difference: Difference
    earlier: list[Cause] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing that is known of both sides differs."""
        return self.difference.empty and not self.earlier


@dataclass(frozen=True)
class Edge:
    """Two neighbours of which one passes and the other does not; `between` are the releases between them that say nothing of the case."""

    before: Outcome
    after: Outcome
    between: list[Version]

    @property
    def broke(self) -> bool:
        """Whether it passes before and not after: last good, first bad. Else last bad, first good."""
        return self.before.verdict is Verdict.PASS

    def __str__(self) -> str:
        old, new = ("good", "bad") if self.broke else ("bad", "good")
        unknown = f" (nothing known of {', '.join(map(str, self.between))})" if self.between else ""
        return f"last {old} {self.before.version}, first {new} {self.after.version}{unknown}"


def histories(group: Group) -> Histories:
    """The history of every case in a group of columns. Of several cells of one release the worst outcome that is known speaks."""
    by_release: dict[str, dict[Version, list[Outcome]]] = {}
    for column in group.columns:
        for case, record in column.outcomes.items():
            outcome = Outcome(column.cell, column.version, record)
            if outcome.known:
                by_release.setdefault(case, {}).setdefault(column.version, []).append(outcome)
    return {case: [worst_of(found[version]) for version in sorted(found)] for case, found in sorted(by_release.items())}


def history(group: Group, case: str) -> list[Outcome]:
    """The history of one case in a group of columns, as `histories` gives it."""
    found: dict[Version, list[Outcome]] = {}
    for column in group.columns:
        record = column.outcomes.get(case)
        if record is not None and (outcome := Outcome(column.cell, column.version, record)).known:
            found.setdefault(column.version, []).append(outcome)
    return [worst_of(found[version]) for version in sorted(found)]


def transitions(group: Group) -> list[Transition]:
    """What changed at each measured release of a group but the first, oldest first; an empty difference where nothing did."""
    releases = sorted({column.version for column in group.columns if column.measured})
    earlier: dict[Version, list[Move]] = {version: [] for version in releases}
    neighbours = set(pairwise(releases))
    for case, outcomes in histories(group).items():
        for older, newer in pairwise(outcomes):
            if (older.version, newer.version) not in neighbours and older.verdict is not newer.verdict:
                earlier[newer.version].append(Move(case, older, newer))
    found = {version: _outcomes(group, version) for version in releases}
    return [Transition(new, old, _between(group, found, old, new), causes(earlier[new])) for old, new in pairwise(releases)]


def _between(group: Group, found: dict[Version, dict[str, Outcome]], old: Version, new: Version) -> Difference:
    """What differs between two releases; a case that a file's record stands for on the other side is left out."""
    here, there = found[old], found[new]
    lost, before = here.keys() - _accounted(group, new), there.keys() - _accounted(group, old)
    kept = here.keys() & there.keys()
    return difference({case: here[case] for case in kept | lost}, {case: there[case] for case in kept | before})


def _outcomes(group: Group, version: Version) -> dict[str, Outcome]:
    """Case -> its outcome at one release, of several cells the worst that says something."""
    found: dict[str, list[Outcome]] = {}
    for column in group.columns:
        if column.version == version:
            for case, record in column.outcomes.items():
                found.setdefault(case, []).append(Outcome(column.cell, column.version, record))
    return {case: worst_of([each for each in outcomes if each.known] or outcomes) for case, outcomes in found.items()}


def _accounted(group: Group, version: Version) -> set[str]:
    """The cases that a release has a record of, or that belong to a file which has one in their place."""
    columns = [column for column in group.columns if column.version == version]
    cases = {case for column in columns for case in column.outcomes}
    files = {file for column in columns for file in column.files}
    listed = (column.result.file_cases() for column in group.columns) if files else ()
    return cases | {case for table in listed for case, file in table.items() if file in files}


def edges(history: Sequence[Outcome], planned: Sequence[Version] = ()) -> list[Edge]:
    """Every pair of neighbours in a case's history of which one passes and the other does not, oldest first.

    `planned` are the releases of the device; those between two neighbours said nothing of the case.
    """
    found = []
    for before, after in pairwise(history):
        if (before.verdict is Verdict.PASS) is not (after.verdict is Verdict.PASS):
            between = [version for version in sorted(set(planned)) if before.version < version < after.version]
            found.append(Edge(before, after, between))
    return found
