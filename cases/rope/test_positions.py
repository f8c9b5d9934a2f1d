"""Positions given as a tensor: sequences of different lengths in one batch, padding, and positions beyond the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform


def compute_at(cache: RotaryCache, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Angles of the positions themselves."""
    return cache.at(positions)


def clamps_to_the_table(cache: RotaryCache, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the table, the last one for all beyond."""
    at = positions.clamp(0, cache.rows - 1)
    return cache.cos[at], cache.sin[at]


def indexes_round_and_round(cache: RotaryCache, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Rows counted from the end for negative positions, and from the start again beyond it."""
    at = positions % cache.rows
    return cache.cos[at], cache.sin[at]


def rounds_positions(cache: RotaryCache, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Positions that went through the dtype of the activations."""
    return cache.at(positions.to(torch.bfloat16))


@values
@catches(clamps_to_the_table, indexes_round_and_round, rounds_positions, read=compute_at)
def test_positions_of_a_batch(read: Callable[..., Any], device: torch.device) -> None:
    """Positions given as a tensor `(B, T)` get their own angles: padding at -1, and those beyond the table too.

    huggingface/transformers#22161, microsoft/onnxruntime#28205: `table[-1]` is the last row, in silence. Holds on 1.13 to 2.15.
    """
    positions = torch.tensor([[-1, 0, 1], [301, 302, 9000]], device=device)
    cos, sin = read(RotaryCache(8, rows=8, device=device), positions)
    right = rotation.angles(positions, 8)
    assert max(rotation.error(cos, right.cos()), rotation.error(sin, right.sin())) < 2e-3


def keep_axis_of_positions(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Tables `(B, 1, D/2)` lie along sequences and positions."""
    return rotate(x, cos, sin)


def squeezes_it(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Tables `(B, D/2)` lie along whatever comes before the channels."""
    first, second, cos, sin = x[..., :4], x[..., 4:], cos[:, 0], sin[:, 0]
    return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)


@values
@catches(squeezes_it, turn=keep_axis_of_positions)
def test_each_sequence_has_its_position(turn: Callable[..., Tensor], device: torch.device) -> None:
    """One new token in each of 4 sequences of different length is turned by the position of its own sequence.

    huggingface/transformers#22161 (left padding). `(B, D/2)` broadcasts against 4 heads in silence. Holds on 1.13 to 2.15.
    """
    x, positions = uniform((4, 1, 4, 8)).to(device), torch.tensor([[3], [9], [0], [40]], device=device)
    got = turn(x, *RotaryCache(8, device=device).at(positions))
    assert rotation.error(got, rotation.turned(x, positions)) < 1e-5


def count_from_the_mask(mask: Tensor) -> Tensor:
    """The first token that is there has position 0."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def counts_columns(mask: Tensor) -> Tensor:
    """Every column is a position, padding too."""
    return torch.arange(mask.size(1)).expand_as(mask)


def counts_from_the_longest(mask: Tensor) -> Tensor:
    """Positions of one row for all."""
    return (mask[:1].cumsum(-1) - 1).clamp(min=0).expand_as(mask)


@values
@catches(counts_columns, counts_from_the_longest, positions=count_from_the_mask)
def test_padding_moves_no_position(positions: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """A sequence padded on the left has keys turned as if it stood alone, so that they are the ones in its cache.

    huggingface/transformers#22161, tloen/alpaca-lora#315. Holds on 1.13 to 2.15.
    """
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    x = uniform((2, 4, 1, 8)).to(device)
    got = rotate(x, *RotaryCache(8, device=device).at(positions(mask).to(device)))
    assert rotation.error(got[1:, 2:], rotation.turned(x[1:, 2:], range(2))) < 1e-5
