"""A comparison of two result sets, or of two columns, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.answers import difference
from conformance.expectations import Expectation
from conformance.setdifferences import Comparison, lone


def answer(comparison: Comparison, expectations: Sequence[Expectation] = ()) -> Iterator[str]:
    """The lines of the comparison: pairs that differ in full, the others counted, and the answer last."""
    equal = [pair for pair in comparison.pairs if pair.difference.empty and not pair.difference.vanished and not pair.difference.appeared]
    for pair in comparison.pairs:
        if pair not in equal or len(comparison.pairs) == 1:
            yield pair.new if pair.old == pair.new else f"{pair.new} against {pair.old}"
            yield from difference.answer(pair.difference, expectations, *pair.sides)
    if equal and len(comparison.pairs) > 1:
        yield f"{len(equal)} of {len(comparison.pairs)} columns do not differ"
    yield from lone(comparison)
    yield "something got worse" if comparison.regressed else "nothing got worse"


def brief(comparison: Comparison) -> Iterator[str]:
    """A line for each pair that differs, for the end of a run."""
    changed = [pair for pair in comparison.pairs if not pair.difference.empty]
    yield f"against the published results: {len(changed)} of {len(comparison.pairs)} columns differ"
    yield from (f"  {pair.new}: {difference.headline(pair.difference)}" for pair in changed)
    if changed:
        yield "  all of it: conformance diff"
