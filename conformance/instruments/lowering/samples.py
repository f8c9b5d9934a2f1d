"""Inputs of small models that go down: one to capture with, and others of other batches, lengths and signs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from conformance.instruments.lowering.journey import Luggage
from conformance.instruments.weights import fill, tokens, uniform

#: Name -> batch, length, and what is added to the numbers; the first is what is captured with.
SIZES = {
    "batch2_length7": (2, 7, 0.0),
    "batch1": (1, 7, 0.0),
    "batch3_length5": (3, 5, 0.0),
    "length1": (2, 1, 0.0),
    "batch1_length16": (1, 16, 0.0),
    "negative": (2, 7, -3.0),
}
BOUNDS = {"batch": (1, 16), "length": (1, 64)}
OPEN = {0: "batch", 1: "length"}
WIDTH = 4


def hidden(batch: int, length: int, shift: float) -> Tensor:
    """float32 `(B, T, WIDTH)` in [-1, 1), shifted."""
    return uniform((batch, length, WIDTH), f"hidden:{batch}x{length}") + shift


def mask(batch: int, length: int, shift: float) -> Tensor:
    """int64 `(B, T)`, 1 where a token is: the last row begins with padding, and more of it where `shift` is not 0."""
    made = torch.ones(batch, length, dtype=torch.int64)
    made[-1, : min(length - 1, 3 if shift else 2)] = 0
    return made


def ids(batch: int, length: int, shift: float) -> Tensor:
    """int64 `(B, T)` below 16."""
    return tokens((batch, length), 16, f"ids:{batch}x{length}:{shift}")


def pack(model: nn.Module, *makers: Callable[[int, int, float], Tensor]) -> Luggage:
    """A model, its weights filled, with inputs from `makers` (`hidden` where none is named), batch and length left open."""
    chosen = makers or (hidden,)
    inputs = {name: tuple(make(*sizes) for make in chosen) for name, sizes in SIZES.items()}
    return Luggage(fill(model).eval(), inputs, [OPEN] * len(chosen), BOUNDS)
