"""A comparison as Markdown, for a pull request or a job's summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from conformance.answers.difference import headline, one_sided
from conformance.differences import Cause
from conformance.markdown import code, escaped, named
from conformance.plaintext import one_line
from conformance.setdifferences import Comparison, Pair, lone

#: Cases of one cause that are named; the JSON names all.
NAMED = 20


def answer(comparison: Comparison) -> Iterator[str]:
    """The lines of the comparison."""
    yield f"## {'Something got worse' if comparison.regressed else 'Nothing got worse'}"
    for pair in comparison.pairs:
        yield from _pair(pair)
    yield from _section("Columns of one set only", [f"- {escaped(line)}" for line in lone(comparison)])


def _pair(pair: Pair) -> Iterator[str]:
    found = pair.difference
    name = code(pair.new) if pair.old == pair.new else f"{code(pair.old)} to {code(pair.new)}"
    yield from ("", f"### {name}", "", f"{headline(found)}.")
    yield from _causes("Worse", found.worse)
    yield from _section("Numbers that got worse", [f"- {escaped(str(move))}" for move in found.numbers if move.worse])
    yield from _causes("Better", found.better)
    yield from _section("Numbers that got better", [f"- {escaped(str(move))}" for move in found.numbers if not move.worse])
    yield from _section("Bits that changed", [f"- {code(move.case)}: {escaped(move.name)}" for move in found.bits])
    for title, cases in one_sided(found, *pair.sides):
        yield from _section(escaped(title), [f"- {named(cases, NAMED)}"])


def _causes(title: str, causes: Sequence[Cause]) -> Iterator[str]:
    rows = []
    for cause in causes:
        place = code(cause.blame) if cause.blame else ""
        rows.append(f"| {cause.before} → {cause.after} | {named(cause.cases, NAMED)} | {escaped(one_line(cause.reason, 300))} | {place} |")
    if rows:
        yield from ("", f"**{title}**", "", "| verdict | cases | reason | where |", "|---|---|---|---|", *rows)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = list(lines)
    if listed:
        yield from ("", f"**{title}**", "", *listed)
