"""What differs between two columns, in lines: for a terminal, and in the same order as Markdown."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from conformance.coverage import covering
from conformance.differences import Cause, Difference, NumberMove
from conformance.expectations import Expectation
from conformance.plaintext import counted, one_line

#: So many cases that one side did not measure are named; of more their families are counted.
NAMED = 12


def answer(difference: Difference, expectations: Sequence[Expectation], old: str, new: str) -> Iterator[str]:
    """The lines of what differs between the sides called `old` and `new`: worse, numbers that got worse, better, numbers that got better,
    bits, and what one side did not measure.

    What got better asks to move the expectation that speaks of it: the commands that do stand under it.
    """
    yield f"  {headline(difference)}"
    yield from _causes("worse", difference.worse)
    yield from _numbers("numbers that got worse", [move for move in difference.numbers if move.worse])
    yield from _causes("better", difference.better)
    yield from _numbers("numbers that got better", [move for move in difference.numbers if not move.worse])
    yield from _listed("expectations to move", moves(difference, expectations))
    yield from _listed("bits that changed", (f"{move.case}: {move.name}" for move in difference.bits))
    for title, cases in one_sided(difference, old, new):
        yield from _listed(title, cases) if len(cases) <= NAMED else [f"  {title}"]


def one_sided(difference: Difference, old: str, new: str) -> Iterator[tuple[str, list[str]]]:
    """What was not compared, with the cases: `not measured on 2.9.1: 79 cases (lowering 60, mps 19)`."""
    sides = ((f"not measured on {new}", difference.vanished), (f"not measured on {old}", difference.appeared))
    for title, cases in (*sides, ("not known on one side", difference.unknown)):
        if cases:
            families = Counter(case.partition(".")[0] for case in cases)
            told = ", ".join(f"{name} {count}" if len(families) > 1 else name for name, count in families.items())
            yield f"{title}: {counted(len(cases), 'case')} ({one_line(told, 200)})", cases


def earlier(found: Sequence[Cause], previous: str) -> Iterator[str]:
    """The lines of what moved against a release before `previous`."""
    moves = [(cause, move) for cause in found for move in cause.moves]
    if moves:
        yield f"  against older releases, since {previous} says nothing of it:"
    for cause, move in moves:
        yield f"    {move.before.version} {cause.before} -> {cause.after}: {one_line(move.case, 200)}: {one_line(cause.reason, 200)}"


def moves(difference: Difference, expectations: Sequence[Expectation]) -> list[str]:
    """The commands that move the expectations which still speak of what got better."""
    entries = [
        entry
        for cause in difference.better
        for move in cause.moves
        if (entry := covering(move.before.record, expectations)) is not None and entry.in_range(move.after.cell)
    ]
    for number in difference.numbers:
        speaking = (entry for entry in expectations if entry.observation is not None and entry.observation.name == number.name)
        entries += [
            entry for entry in speaking if not number.worse and entry.covers(number.before.record) and entry.covers(number.after.record)
        ]
    return list(dict.fromkeys(f"conformance expect --tighten --case {shlex.quote(entry.case)}" for entry in entries))


def headline(difference: Difference, older: Sequence[Cause] = ()) -> str:
    """The answer in one sentence; `older` is what moved against older releases than the one compared with."""
    worse, better = (sum(len(cause.moves) for cause in causes) for causes in (difference.worse, difference.better))
    moved = [sum(move.worse is side for move in difference.numbers) for side in (True, False)]
    told = [
        f"{counted(worse, 'case')} got worse" if worse else "",
        f"{better:,} got better" if better else "",
        f"{counted(sum(moved), 'number')} moved ({moved[0]:,} for the worse)" if sum(moved) else "",
        f"{counted(len(difference.bits), 'observation')} changed bits" if difference.bits else "",
    ]
    since = sum(len(cause.moves) for cause in older)
    more = f"; {counted(since, 'case')} changed since an older release" if since else ""
    return f"{', '.join(each for each in told if each) or 'nothing changed'} ({counted(difference.compared, 'case')} compared){more}"


def _causes(title: str, causes: Sequence[Cause]) -> Iterator[str]:
    if causes:
        yield f"  {title}:"
    for cause in causes:
        yield f"    {cause.before} -> {cause.after}: {one_line(cause.reason, 300)}"
        if cause.blame:
            yield f"        {one_line(cause.blame, 120)}: {one_line(cause.source, 160)}"
        for move in cause.moves:
            yield f"        {one_line(move.case, 200)}"


def _numbers(title: str, moves: Sequence[NumberMove]) -> Iterator[str]:
    yield from _listed(title, map(str, moves))


def _listed(title: str, entries: Iterable[str]) -> Iterator[str]:
    listed = list(entries)
    if listed:
        yield f"  {title}{'' if title.endswith(')') else ':'}"
        yield from (f"    {one_line(entry, 300)}" for entry in listed)
