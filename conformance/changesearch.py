"""The search for the first release where something changed: what is known is used, and only what must be known is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from conformance.compare import Change, changes, ranges
from conformance.readings import Reading

#: Measures one release; None where that came to nothing, or cannot be done.
Measure = Callable[[Version], Reading | None]


@dataclass
class History:
    """What is known of a stretch of releases. `failed` were tried and came to nothing; the rest has no reading and is not claimed."""

    releases: Sequence[Version]
    known: dict[Version, Reading]
    measured: list[Version] = field(default_factory=list)
    failed: list[Version] = field(default_factory=list)
    before: Reading | None = None
    after: Reading | None = None

    @property
    def unknown(self) -> list[Version]:
        """The releases of the stretch that nobody measured."""
        return [version for version in self.releases if version not in self.known]

    @property
    def between(self) -> list[Version]:
        """The releases between both neighbours of the change that could not be measured."""
        if self.before is None or self.after is None:
            return []
        return [version for version in self.unknown if self.before.version < version < self.after.version]

    @property
    def changes(self) -> list[Change]:
        """Every place where neighbours among the known releases differ."""
        return changes({version: reading.value for version, reading in self.known.items()})

    def lines(self) -> list[str]:
        """The stretch in classes of equal values, and what was not measured of it."""
        told = []
        for value in dict.fromkeys(reading.value for _, reading in sorted(self.known.items())):
            holding = [version for version, reading in self.known.items() if reading.value == value]
            told.append(f"  {value}: torch {', '.join(ranges(holding, self.known))}")
        if len(self.changes) > 1:
            steps = (
                f"{each.before.digest} to {each.after.digest} at {each.at} (last as before on {each.before.last})" for each in self.changes
            )
            told.append(f"  it changes {len(self.changes)} times: {'; '.join(steps)}")
        if self.unknown:
            told.append(f"  not measured: {', '.join(map(str, self.unknown))}; a change that went back in between would not be seen")
        return told


def search(releases: Sequence[Version], known: Mapping[Version, Reading], measure: Measure) -> History:
    """The first change between the oldest and the newest of `releases`, as far as readings tell it.

    Where the readings at hand differ, the earliest two neighbours that do are taken, and halved until no release is left between them.
    Where they do not, both ends are measured; equal ends leave `before` empty.
    """
    history = History(releases, {version: reading for version, reading in sorted(known.items()) if version in releases})
    take = _taking(history, measure)
    if not history.changes:
        _first_known(list(releases), take)
        _first_known(list(reversed(releases)), take)
    if history.changes:
        _halve(history, take)
    return history


def _taking(history: History, measure: Measure) -> Measure:
    """`measure`, with what it finds noted in the history."""

    def take(version: Version) -> Reading | None:
        if version in history.known or version in history.failed:
            return history.known.get(version)
        reading = measure(version)
        if reading is None:
            history.failed.append(version)
            return None
        history.measured.append(version)
        history.known = dict(sorted({**history.known, version: reading}.items()))
        return reading

    return take


def _first_known(releases: Sequence[Version], take: Measure) -> None:
    """Read the first release that can be read."""
    next((version for version in releases if take(version) is not None), None)


def _halve(history: History, take: Measure) -> None:
    while True:
        first = history.changes[0]
        low, high = first.before.last, first.after.first
        history.before, history.after = history.known[low], history.known[high]
        left = [version for version in history.between if version not in history.failed]
        if not left:
            return
        middle = (len(left) - 1) / 2
        take(min(left, key=lambda version: abs(left.index(version) - middle)))
