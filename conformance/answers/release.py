"""What changed at one release, on each device, against the release measured before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.version import InvalidVersion, Version

from conformance.answers import difference
from conformance.columns import Group
from conformance.errors import NothingSelectedError
from conformance.expectations import Expectation
from conformance.transitions import transitions


def answer(groups: Sequence[Group], release: str, expectations: Sequence[Expectation] = ()) -> list[str]:
    """The lines for every measured release that `release` names. Raises NothingSelectedError when none was measured."""
    known = sorted({column.version for group in groups for column in group.columns if column.measured})
    wanted = named(release, known)
    if not wanted:
        measured = ", ".join(map(str, known)) or "nothing"
        raise NothingSelectedError(f"torch {release} was not measured; measured: {measured}")
    return [line for group in groups for line in _of(group, wanted, expectations)]


def named(release: str, known: Sequence[Version]) -> list[Version]:
    """The known releases that `release` names: that very one, or all that begin with its numbers, as 2.1 names 2.1.2 and not 2.10.0."""
    try:
        version = Version(release)
    except InvalidVersion:
        return []
    exact = [each for each in known if each == version and str(each) == release]
    return exact or [each for each in known if each.release[: len(version.release)] == version.release]


def _of(group: Group, wanted: Sequence[Version], expectations: Sequence[Expectation]) -> Iterator[str]:
    changed = {each.version: each for each in transitions(group.sound)}
    for version in wanted:
        if version in changed:
            step, old = changed[version], str(changed[version].previous)
            yield f"torch {version} on {group.label}, against {old}"
            yield from difference.answer(step.difference, expectations, old, str(version))
            yield from difference.earlier(step.earlier, old)
        elif any(column.version == version and column.measured for column in group.columns):
            counts = any(column.version == version for column in group.sound.columns)
            notes = ", ".join(dict.fromkeys(column.note for column in group.columns if column.version == version))
            why = "is the oldest release measured there: nothing to compare it with" if counts else f"does not count: {notes}"
            yield f"torch {version} on {group.label} {why}"
