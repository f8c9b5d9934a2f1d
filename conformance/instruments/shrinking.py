"""The smallest input that still fails: what a maintainer wants to see of a failure that a large one showed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

#: How many inputs a search may try.
MOST = 60


def smallest(example: Mapping[str, int], fails: Callable[[Mapping[str, int]], bool], beyond: int = 3) -> dict[str, int] | None:
    """The sizes (axis name -> size) of the smallest input for which `fails` holds, None where none of those tried does.

    Tries all sizes from 1 to a little beyond the example's, by the number of elements, but the example itself, at most MOST of them.
    """
    for sizes in itertools.islice(_by_elements(example, beyond), MOST):
        if sizes != dict(example) and fails(sizes):
            return sizes
    return None


def _by_elements(example: Mapping[str, int], beyond: int) -> Iterator[dict[str, int]]:
    ranges = [_spread(size, beyond) for size in example.values()]
    combinations = (dict(zip(example, sizes)) for sizes in itertools.product(*ranges))
    return iter(sorted(combinations, key=_elements))


def _spread(size: int, beyond: int) -> list[int]:
    """1 to 4, and the neighbourhood of the example's size."""
    return sorted({*range(1, 5), *range(max(1, size - 1), size + beyond)})


def _elements(sizes: Mapping[str, int]) -> int:
    product = 1
    for size in sizes.values():
        product *= size
    return product
