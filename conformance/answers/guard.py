"""Where a guard is needed and where it may be dropped, from the cases that run with it and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.version import InvalidVersion, Version

from conformance import selectors
from conformance.answers.case import passes
from conformance.columns import Group
from conformance.compare import basis
from conformance.errors import NothingSelectedError
from conformance.guardneeds import Way, needs
from conformance.selectors import matches


def answer(
    groups: Sequence[Group], ways: Sequence[Way], offered: Mapping[str, str], users: Mapping[str, list[str]], name: str
) -> list[str]:
    """The lines of every guard that `name`, an id or a glob, names. `offered` is guard -> what it does, `users` guard -> its cases.

    Raises NothingSelectedError when there is no such guard.
    """
    chosen = sorted(selectors.chosen([name], offered))
    if not chosen:
        raise NothingSelectedError(f"no guard matches {name!r}{selectors.close_matches(name, list(offered))}")
    return [line for guard in chosen for line in _guard(groups, ways, guard, offered[guard], users.get(guard, []))]


def _guard(groups: Sequence[Group], ways: Sequence[Way], guard: str, what: str, users: Sequence[str]) -> Iterator[str]:
    yield f"{guard}: {what}"
    found = needs(groups, ways, guard)
    for need in found:
        yield f"  without it, by {need.way.way}, on {need.group.label}: {need.sentence}"
    if not found:
        stated = any(way.guard == guard for way in ways)
        yield "  without it: its cases were not measured" if stated else "  without it: no case does without it"
    without = [pattern for way in ways if way.guard == guard for pattern in way.cases]
    yield from _with(groups, [case for case in users if not any(matches(pattern.partition("[")[0], case) for pattern in without)])


def _with(groups: Sequence[Group], users: Sequence[str]) -> Iterator[str]:
    """The cases that use the guard, each with where it passes."""
    if not users:
        yield "  with it: no case of its own"
    for group in groups:
        cases = {case for column in group.columns for case in column.outcomes if case.partition("[")[0] in users}
        for case in sorted(cases):
            yield f"  with it, on {group.label}: {case} {passes(verdicts := group.verdicts(case))} ({basis(verdicts)})"


def droppable(groups: Sequence[Group], ways: Sequence[Way], floor: str) -> list[str]:
    """For each way to do without a guard, whether it holds from the release `floor` on, on every device where it was measured.

    Raises NothingSelectedError when `floor` is no release.
    """
    try:
        lowest = Version(floor)
    except InvalidVersion as error:
        raise NothingSelectedError(f"--floor {floor!r} is no release, as 2.6") from error
    by_way = {way: needs(groups, [way], way.guard) for way in ways}
    told: dict[str, list[str]] = {"may be dropped": [], "still needed": [], "not measured": []}
    for way, found in by_way.items():
        measured = [need for need in found if any(version >= lowest for version in need.measured)]
        needing = [f"{need.group.label}: {_runs(need.needed, lowest)}" for need in measured if _runs(need.needed, lowest)]
        state = "not measured" if not measured else "still needed" if needing else "may be dropped"
        told[state].append(f"{way.guard}, by {way.way}" + (f" ({'; '.join(needing)})" if needing else ""))
    return [
        line
        for state, listed in told.items()
        if listed
        for line in (f"{state} where the floor is {floor}:", *(f"  {each}" for each in sorted(listed)))
    ]


def _runs(needed: Sequence[Version], lowest: Version) -> str:
    """The releases from `lowest` on that need it, as `2.7.1 to 2.15.0`; empty for none."""
    above = [str(version) for version in needed if version >= lowest]
    return " to ".join(dict.fromkeys([above[0], above[-1]])) if above else ""
