"""Pages that stay light: a long list becomes several, and each of them says where the others are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Part(Generic[Item]):
    """One page of a list: its number of `count` from 1 on, its items, and the addresses of all parts with what is first in each."""

    number: int
    items: list[Item]
    all: list[tuple[str, str]]

    @property
    def address(self) -> str:
        """Where this page lies."""
        return self.all[self.number - 1][0]


def parts(
    items: Sequence[Item], weight: Callable[[Item], int], budget: int, address: Callable[[int], str], label: Callable[[Item], str]
) -> Iterator[Part[Item]]:
    """`items` on pages of at most `budget` weight, at least one item and one page each; nothing is left out."""
    chunks: list[list[Item]] = [[]]
    room = budget
    for item in items:
        heavy = weight(item)
        if chunks[-1] and heavy > room:
            chunks.append([])
            room = budget
        chunks[-1].append(item)
        room -= heavy
    listed = [(address(number), label(chunk[0]) if chunk else "") for number, chunk in enumerate(chunks, 1)]
    for number, chunk in enumerate(chunks, 1):
        yield Part(number, chunk, listed)
