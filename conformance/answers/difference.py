"""What differs between two columns, in lines: for a terminal, and in the same order as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from conformance.differences import Cause, Difference, NumberMove
from conformance.plaintext import one_line


def answer(difference: Difference, notes: Sequence[str] = ()) -> Iterator[str]:
    """The lines of one difference: worse, numbers that got worse, better, numbers that got better, bits, cases that came and went."""
    yield f"  {headline(difference)}"
    yield from (f"  {note}" for note in notes)
    yield from _causes("worse", difference.worse)
    yield from _numbers("numbers that got worse", [move for move in difference.numbers if move.worse])
    yield from _causes("better", difference.better)
    yield from _numbers("numbers that got better", [move for move in difference.numbers if not move.worse])
    yield from _listed("bits that changed", (f"{move.case}: {move.name}" for move in difference.bits))
    yield from _listed("new cases", difference.appeared)
    yield from _listed("cases that are gone", difference.vanished)
    yield from _listed("not known on one side", difference.unknown)


def headline(difference: Difference) -> str:
    """The answer in one sentence."""
    worse, better = (sum(len(cause.moves) for cause in causes) for causes in (difference.worse, difference.better))
    moved = [sum(move.worse is side for move in difference.numbers) for side in (True, False)]
    told = [
        f"{worse} {_cases(worse)} got worse" if worse else "",
        f"{better} got better" if better else "",
        f"{sum(moved)} numbers moved ({moved[0]} for the worse)" if sum(moved) else "",
        f"{len(difference.bits)} observations changed their bits" if difference.bits else "",
    ]
    compared = f"{difference.compared:,} {_cases(difference.compared)} compared"
    return f"{', '.join(each for each in told if each) or 'nothing changed'} ({compared})"


def _cases(count: int) -> str:
    return "case" if count == 1 else "cases"


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
        yield f"  {title}:"
        yield from (f"    {one_line(entry, 300)}" for entry in listed)
