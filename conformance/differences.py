"""What differs between two columns: cases that got worse or better, by cause; numbers that moved, bits that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from packaging.version import Version

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.compare import UNKNOWN, worsened
from conformance.incell.verdicts import Verdict
from conformance.reasons import blamed, blamed_source, generic_reason, stated_reason

#: Errors and other numbers that are not counts may move by this share before it counts as a change.
SLACK = 0.1
#: From the best for who uses the case's idiom to the worst. What is not there in words harms less than what is there and fails.
_WORTH = (
    Verdict.PASS,
    Verdict.UNSUPPORTED,
    Verdict.UNEXERCISED,
    Verdict.TIMEOUT,
    Verdict.RAISES,
    Verdict.CRASH,
    Verdict.WRONG,
)
_UNKNOWN = frozenset(verdict.value for verdict in UNKNOWN)


class Outcome(NamedTuple):
    """What one case came to in one cell: the cell, its release and the record of the worst attempt there."""

    cell: Cell
    version: Version
    record: Record

    @property
    def verdict(self) -> Verdict:
        """The verdict of the record."""
        return Verdict(self.record["verdict"])

    @property
    def known(self) -> bool:
        """Whether the verdict says something about torch."""
        return self.record["verdict"] not in _UNKNOWN


@dataclass(frozen=True)
class Move:
    """One case whose verdict differs between `before` and `after`."""

    case: str
    before: Outcome
    after: Outcome

    @property
    def worse(self) -> bool:
        """Whether it got worse. An API that arrives and does not work is worse than none: what deviates is new."""
        return _WORTH.index(self.after.verdict) > _WORTH.index(self.before.verdict)

    @property
    def telling(self) -> Outcome:
        """The side that says why: where it got worse, the new one; where it got better, what it was cured of."""
        return self.after if self.worse else self.before


@dataclass(frozen=True)
class NumberMove:
    """One observed number with a direction that moved, in a case whose verdict did not."""

    case: str
    name: str
    before: Outcome
    after: Outcome
    old: float
    new: float
    better: str
    worse: bool

    def __str__(self) -> str:
        return f"{self.case}: {self.name} {self.old:g} -> {self.new:g} ({self.better} is better)"


@dataclass(frozen=True)
class BitMove:
    """One observation whose bits differ, in a case whose verdict does not. That is neither good nor bad."""

    case: str
    name: str
    before: Outcome
    after: Outcome


@dataclass(frozen=True)
class Cause:
    """Moves with one cause: the same verdicts, the same line to blame, and reasons that differ in numbers at most."""

    before: Verdict
    after: Verdict
    moves: list[Move]

    @property
    def example(self) -> Record:
        """The record that says why, of the first of the moves."""
        return self.moves[0].telling.record

    @property
    def reason(self) -> str:
        """Why, in the words of that record."""
        return stated_reason(self.example)

    @property
    def blame(self) -> str:
        """Where, as file:line; empty where nothing is blamed."""
        return blamed(self.example)

    @property
    def source(self) -> str:
        """The line of source that is blamed."""
        return blamed_source(self.example)

    @property
    def cases(self) -> list[str]:
        """The cases that moved."""
        return [move.case for move in self.moves]


@dataclass(frozen=True)
class Difference:
    """All that differs between two columns. A case that only the newer has a record of stands in `appeared`, one that only the older has
    in `vanished`: it was not asked on the other side, which says nothing of it. One that an `error` or a `missing` record keeps from being
    compared stands in `unknown`; `compared` counts the cases that both know."""

    worse: list[Cause] = field(default_factory=list)
    better: list[Cause] = field(default_factory=list)
    numbers: list[NumberMove] = field(default_factory=list)
    bits: list[BitMove] = field(default_factory=list)
    appeared: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    compared: int = 0

    @property
    def regressed(self) -> bool:
        """Whether anything got worse: a verdict, or a number with a direction."""
        return bool(self.worse) or any(move.worse for move in self.numbers)

    @property
    def silent(self) -> bool:
        """Whether there is nothing at all to list of it."""
        return self.empty and not (self.appeared or self.vanished or self.unknown)

    @property
    def empty(self) -> bool:
        """Whether nothing that both know differs."""
        return not (self.worse or self.better or self.numbers or self.bits)


def difference(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> Difference:
    """What differs from `before` to `after`, both case -> outcome; pure. Causes: the gravest first, then the one with most cases."""
    both = [(case, before[case], after[case]) for case in sorted(before.keys() & after.keys())]
    known = [each for each in both if each[1].known and each[2].known]
    moves = [Move(case, old, new) for case, old, new in known if old.record["verdict"] != new.record["verdict"]]
    seen = [each for each in known if _observed_otherwise(*each[1:])]
    return Difference(
        worse=causes(move for move in moves if move.worse),
        better=causes(move for move in moves if not move.worse),
        numbers=[move for each in seen for move in _numbers(*each)],
        bits=[move for each in seen for move in _bits(*each)],
        appeared=sorted(after.keys() - before.keys()),
        vanished=sorted(before.keys() - after.keys()),
        unknown=[case for case, old, new in both if not (old.known and new.known)],
        compared=len(known),
    )


def causes(moves: Iterable[Move]) -> list[Cause]:
    """The moves by their cause, the gravest first, then the one with most cases."""
    found: dict[tuple[Any, ...], list[Move]] = {}
    for move in moves:
        told = move.telling.record
        found.setdefault((move.before.verdict, move.after.verdict, blamed(told), generic_reason(told)), []).append(move)
    made = [Cause(key[0], key[1], members) for key, members in found.items()]
    return sorted(made, key=_gravity)


def _gravity(cause: Cause) -> tuple[int, int, str]:
    worst = max(_WORTH.index(cause.before), _WORTH.index(cause.after))
    return -worst, -len(cause.moves), cause.cases[0]


def _observed_otherwise(before: Outcome, after: Outcome) -> bool:
    """Whether the verdict stayed and an observation did not: where the verdict moved, that is the news."""
    old, new = before.record, after.record
    return bool(old["verdict"] == new["verdict"] and old["observations"] != new["observations"])


def _numbers(case: str, before: Outcome, after: Outcome) -> Iterator[NumberMove]:
    for name, seen in sorted(after.record["observations"].items()):
        old, new = number(before.record, name), number(after.record, name)
        better = seen.get("better") if isinstance(seen, dict) else None
        if old is None or new is None or better is None:
            continue
        worse = worsened(old, new, better, SLACK)
        if worse is not None and not (worse and before.verdict.deviates):  # of a case that does not pass no number is worse
            yield NumberMove(case, name, before, after, old, new, better, worse)


def _bits(case: str, before: Outcome, after: Outcome) -> Iterator[BitMove]:
    for name in sorted(after.record["observations"]):
        old, new = digest(before.record, name), digest(after.record, name)
        if old and new and old != new:
            yield BitMove(case, name, before, after)


def number(record: Record, name: str) -> float | None:
    """The number that `record` observed under `name`, also one that is not finite; None when it observed none."""
    return number_of(record["observations"].get(name))


def number_of(observed: object) -> float | None:
    """The number of one observation; None for one of another kind."""
    if not isinstance(observed, dict) or observed.get("kind") != "number":
        return None
    value = observed.get("value")
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def digest(record: Record, name: str) -> str:
    """The digest of the bits that `record` observed under `name`; empty when it observed none."""
    observed = record["observations"].get(name)
    value = observed.get("digest") if isinstance(observed, dict) else None
    return value if isinstance(value, str) else ""


def outcomes_of(cell: Cell, records: Mapping[str, Record]) -> dict[str, Outcome]:
    """Case -> outcome of one column, for `difference`."""
    version = cell.version
    return {case: Outcome(cell, version, record) for case, record in records.items()}


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome that speaks for several of one release: the worst verdict, the first of equals."""
    if len(outcomes) == 1:
        return outcomes[0]
    return min(outcomes, key=lambda outcome: outcome.verdict.severity)
