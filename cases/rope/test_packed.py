"""Sequences packed one behind the other: each begins at position 0, and where one ends can be read from the positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Positions = Callable[[Tensor], Tensor]

#: Name -> lengths of the documents of one row. Numbers of documents come round again, as they do in a buffer that is filled in turn.
PACKED = {"long": (3, 5, 4), "single_tokens": (1, 1, 4, 1), "one_alone": (6,)}


def _numbers(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """The number of the document of each token `(T,)`: 0, 1, 0, 1 ..."""
    return torch.tensor([index % 2 for index, length in enumerate(lengths) for _ in range(length)], device=device)


def count_from_each_start(documents: Tensor) -> Tensor:
    """The distance to the latest token whose document is another than that of the token before."""
    steps = torch.arange(len(documents), device=documents.device)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[1:] = documents[1:] != documents[:-1]
    return steps - torch.where(starts, steps, torch.zeros_like(steps)).cummax(0).values


def counts_on(documents: Tensor) -> Tensor:
    """The place in the row."""
    return torch.arange(len(documents), device=documents.device)


def counts_by_number(documents: Tensor) -> Tensor:
    """The how manieth token of that number: a number that comes round again goes on where it was."""
    same = documents[:, None] == documents[None, :]
    return same.to(torch.int64).tril().sum(-1) - 1


@values
@pytest.mark.parametrize("packed", ["long", "single_tokens"])
@catches(counts_on, positions=count_from_each_start)
def test_packed_documents_turn_as_if_alone(positions: Positions, packed: str, device: torch.device) -> None:
    """Each document of a packed row is turned as it is turned alone.

    allenai/OLMo-core#591, pytorch/torchtitan#2559, huggingface/nanoVLM#201. 1.13 to 2.15.
    """
    lengths = PACKED[packed]
    x = uniform((1, sum(lengths), 2, 8)).to(device)
    turned = rotate(x, *RotaryCache(8, device=device).at(positions(_numbers(lengths, device))))
    alone = [rotation.turned(part, range(part.size(1))) for part in x.split(lengths, dim=1)]
    assert rotation.error(turned, torch.cat(alone, dim=1)) < 1e-5


@values
@catches(counts_by_number, positions=count_from_each_start)
def test_number_that_comes_round_begins_again(positions: Positions, device: torch.device) -> None:
    """A document begins at 0 though an earlier one of the same row had its number.

    allenai/OLMo-core#503 is the kin. Observed on 1.13 to 2.15.
    """
    assert positions(_numbers(PACKED["long"], device)).tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3]


Ends = Callable[[Tensor], "list[int]"]


def lengths_by_zeros(positions: Tensor) -> list[int]:
    """A document begins at each 0."""
    starts = [at for at, position in enumerate(positions.tolist()) if position == 0]
    return [end - start for start, end in zip(starts, [*starts[1:], len(positions)])]


def lengths_by_decrease(positions: Tensor) -> list[int]:
    """A document begins where the position falls: from 0 to 0 it does not."""
    told = positions.tolist()
    starts = [0, *(at for at in range(1, len(told)) if told[at] < told[at - 1])]
    return [end - start for start, end in zip(starts, [*starts[1:], len(told)])]


@values
@catches(lengths_by_decrease, lengths=lengths_by_zeros)
def test_single_token_is_a_document(lengths: Ends, device: torch.device) -> None:
    """The lengths that are read from positions count documents of one token.

    modelscope/ms-swift#9904. Observed on 1.13 to 2.15.
    """
    for packed in PACKED.values():
        positions = torch.tensor([step for length in packed for step in range(length)], device=device)
        assert lengths(positions) == list(packed)
