"""Comparisons between cells: where a case passes, where bits change, and which numbers got worse."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

from packaging.version import Version

from conformance.incell.verdicts import Verdict

#: Verdicts that say nothing about torch: a release with one of these counts as not measured.
UNKNOWN = frozenset({Verdict.ERROR, Verdict.MISSING})
#: Of so many measured releases with many others between them each is named, in place of an interval.
FEW = 5
#: Releases without a verdict that are named one by one; of more, those between measured ones are counted.
_NAMED = 3
_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}


@dataclass(frozen=True)
class Run:
    """Measured releases side by side with equal bits. Equal labels mean equal digests, also far apart."""

    label: str
    digest: str
    releases: tuple[Version, ...]

    @property
    def first(self) -> Version:
        """The oldest release of the run."""
        return self.releases[0]

    @property
    def last(self) -> Version:
        """The newest release of the run."""
        return self.releases[-1]

    def __str__(self) -> str:
        return f"{self.first}" if len(self.releases) == 1 else f"{self.first} to {self.last}"


@dataclass(frozen=True)
class Change:
    """Where the bits differ from those of the measured release before: `before` and `after` are the runs on both sides."""

    before: Run
    after: Run
    returns: bool

    @property
    def at(self) -> Version:
        """The first release with the new bits."""
        return self.after.first

    def __str__(self) -> str:
        if self.returns:
            return f"goes back to bits {self.after.label} at {self.at} (last seen different: {self.before.last})"
        return f"changes its bits at {self.at} (last seen equal: {self.before.last})"


def measured(outcomes: Mapping[Version, Verdict | None]) -> list[Version]:
    """The releases whose verdict says something about torch, oldest first."""
    return sorted(version for version, verdict in outcomes.items() if verdict is not None and verdict not in UNKNOWN)


def intervals(outcomes: Mapping[Version, Verdict | None]) -> str:
    """The specifier of the releases where it passes, as `>=2.1, !=2.8.*`; "none" where it never does, "unknown" where nothing ran.

    Of the measured releases it holds for exactly those that pass. One measured release speaks for its minor, unless another of the same
    minor says otherwise or it is a pre-release: then exact releases are named. Below the oldest of them it claims nothing; above the
    newest it is open only when nothing newer was planned. A release without a verdict between two others is no hole: `measured_range`
    names it.
    """
    ran = measured(outcomes)
    passing = [version for version in ran if outcomes[version] is Verdict.PASS]
    if not passing:
        return "none" if ran else "unknown"
    whole = _whole_minors(ran, passing)
    first, last = passing[0], passing[-1]
    one = _one(passing, whole)
    if one and (len(ran) == len(passing) or last != ran[-1]):
        return one
    holes = dict.fromkeys(_named(version, whole) for version in ran if first < version < last and version not in passing)
    closed = [_upto(last, whole)] if any(version > last for version in outcomes) else []
    return ", ".join([f">={_minor(first) if first in whole else first}", *(f"!={hole}" for hole in holes), *closed])


def ranges(chosen: Iterable[Version], all_measured: Iterable[Version]) -> list[str]:
    """`chosen` as specifiers in the form of `intervals`, one for each stretch of neighbours among what was measured.

    As `["==2.8.*", ">=2.10, <2.13"]`: together they hold for exactly the chosen ones of what was measured; each has both its ends.
    """
    wanted, ran = set(chosen), set(all_measured)
    whole = _whole_minors(sorted(ran | wanted), sorted(wanted))
    found = []
    for stretch in _stretches(wanted, ran):
        first, last = stretch[0], stretch[-1]
        start = _minor(first) if first in whole else first
        found.append(_one(stretch, whole) or f">={start}, {_upto(last, whole)}")
    return found


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _whole_minors(ran: Sequence[Version], chosen: Collection[Version]) -> set[Version]:
    """The releases whose minor may be named in place of themselves: all that was measured of it is chosen, or none, and all are final."""
    by_minor: dict[str, list[Version]] = {}
    for version in ran:
        by_minor.setdefault(_minor(version), []).append(version)
    agreeing = (
        group
        for group in by_minor.values()
        if len({version in chosen for version in group}) == 1 and not any(version.is_prerelease for version in group)
    )
    return {version for group in agreeing for version in group}


def _one(stretch: Sequence[Version], whole: Collection[Version]) -> str:
    """`==2.8.*` or `==2.8.0` for a stretch that is one minor, or one release; empty for a longer one."""
    if stretch[0] in whole and _minor(stretch[0]) == _minor(stretch[-1]):
        return f"=={_minor(stretch[0])}.*"
    return f"=={stretch[0]}" if len(stretch) == 1 else ""


def _named(version: Version, whole: Collection[Version]) -> str:
    return f"{_minor(version)}.*" if version in whole else str(version)


def _upto(last: Version, whole: Collection[Version]) -> str:
    return f"<{last.major}.{last.minor + 1}" if last in whole else f"<={last}"


def between(outcomes: Mapping[Version, Verdict | None]) -> list[Version]:
    """The releases without a verdict that lie between measured ones: an interval over them rests on their neighbours alone."""
    ran = measured(outcomes)
    return [version for version in sorted(outcomes) if ran and ran[0] < version < ran[-1] and version not in ran]


def stated(outcomes: Mapping[Version, Verdict | None]) -> str:
    """`intervals` for a sentence: where few releases were measured and many lie between, `on 2.0.1, 2.4.1, 2.15.0` in its place."""
    if not _few(outcomes):
        return intervals(outcomes)
    passing = [str(version) for version in measured(outcomes) if outcomes[version] is Verdict.PASS]
    return f"on {', '.join(passing)}" if passing else "none"


def measured_range(outcomes: Mapping[Version, Verdict | None]) -> str:
    """The releases that `intervals` rests on, as `tested 2.0.1 to 2.15.0, nothing from 2.5.1`; each of them where they are few."""
    ran = measured(outcomes)
    if not ran:
        return "not measured"
    if _few(outcomes):
        return f"tested {', '.join(map(str, ran))} alone"
    span = f"tested {ran[0]}" if len(ran) == 1 else f"tested {ran[0]} to {ran[-1]}"
    holes, inner = [version for version in sorted(outcomes) if version not in ran], between(outcomes)
    shown = holes if len(holes) <= _NAMED else inner
    told = ", ".join(map(str, shown)) if len(shown) <= _NAMED else f"{len(shown)} between"
    return f"{span}, nothing from {told}" if shown else span


def basis(outcomes: Mapping[Version, Verdict | None]) -> str:
    """What stands beside `stated`: `the only three measured` where it names all that were, else `measured_range`."""
    ran = measured(outcomes)
    if _few(outcomes) and all(outcomes[version] is Verdict.PASS for version in ran):
        return f"the only {_WORDS[len(ran)]} measured"
    return measured_range(outcomes)


def _few(outcomes: Mapping[Version, Verdict | None]) -> bool:
    return len(measured(outcomes)) <= FEW and len(between(outcomes)) > _NAMED


def spans(chosen: Iterable[Version], all_measured: Iterable[Version]) -> list[str]:
    """`chosen` as specifiers, one for each stretch of neighbours among what was measured: `>=2.1.2,<=2.4.1`, or `==2.8.0`."""
    stretches = _stretches(set(chosen), set(all_measured))
    return [f"=={each[0]}" if len(each) == 1 else f">={each[0]},<={each[-1]}" for each in stretches]


def said(chosen: Iterable[Version], planned: Iterable[Version]) -> str:
    """`chosen` in words, neighbours among what was planned taken together: `2.0.1 to 2.4.1, 2.15.0`."""
    stretches = _stretches(set(chosen), set(planned))
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}" for each in stretches)


def _stretches(wanted: set[Version], ran: set[Version]) -> list[list[Version]]:
    """The wanted releases in runs of neighbours among all that ran."""
    found: list[list[Version]] = [[]]
    for version in sorted(wanted | ran):
        if version in wanted:
            found[-1].append(version)
        elif found[-1]:
            found.append([])
    return [each for each in found if each]


def classes(values: Mapping[Version, str | None]) -> list[Run]:
    """The equivalence classes of `values` (release -> digest) as runs, oldest first; a release without a digest is skipped."""
    runs: list[Run] = []
    labels: dict[str, str] = {}
    for version in sorted(values):
        digest = values[version]
        if digest is None:
            continue
        label = labels.setdefault(digest, class_letter(len(labels)))
        if runs and runs[-1].digest == digest:
            runs[-1] = Run(label, digest, (*runs[-1].releases, version))
        else:
            runs.append(Run(label, digest, (version,)))
    return runs


def class_letter(index: int) -> str:
    """The label of a class by its number: 0 -> A, 25 -> Z, 26 -> AA."""
    head, tail = divmod(index, len(ascii_uppercase))
    return (class_letter(head - 1) if head else "") + ascii_uppercase[tail]


def changes(values: Mapping[Version, str | None]) -> list[Change]:
    """Every place where the digest differs from the one before, oldest first; empty when all are equal or fewer than two are known."""
    return changes_between(classes(values))


def changes_between(runs: Sequence[Run]) -> list[Change]:
    """The changes from each of `runs`, as `classes` gives them, to the next."""
    found: list[Change] = []
    seen: set[str] = set()
    for before, after in pairwise(runs):
        seen.add(before.label)
        found.append(Change(before, after, after.label in seen))
    return found


def worsened(old: float, new: float, better: str | None, slack: float = 0.0) -> bool | None:
    """Whether a number got worse on its way from `old` to `new`; None where it has no direction or did not move.

    A move within `slack`, a share of the larger of the two, is none: errors differ a little between machines. Whole numbers have no slack.
    What is not a number is worse than any that is.
    """
    if better not in ("lower", "higher") or old == new or (math.isnan(old) and math.isnan(new)):
        return None
    if math.isnan(old) or math.isnan(new):
        return math.isnan(new)
    counted = old.is_integer() and new.is_integer()
    if not counted and math.isfinite(old) and math.isfinite(new) and abs(new - old) <= slack * max(abs(old), abs(new)):
        return None
    return (new > old) if better == "lower" else (new < old)
