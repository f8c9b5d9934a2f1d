"""A base that stretches with the sequence (dynamic NTK): it must come back, and depend on nothing but the length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from conformance.guards.rotary import DynamicRotaryCache, RotaryCache, rotate
from conformance.incell import catches, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Cache = Callable[..., Any]
TRAINED, FACTOR, DIM = 8, 2.0, 8


def base_for(length: int) -> float:
    """The base for a whole sequence of `length` positions, by the formula of dynamic NTK scaling."""
    if length <= TRAINED:
        return rotation.BASE
    return float(rotation.BASE * (FACTOR * length / TRAINED - (FACTOR - 1)) ** (DIM / (DIM - 2)))


class StaysStretched(RotaryCache):
    """Rewrites its table when a sequence is longer than the table, and never again."""

    def __init__(self, head_dim: int, trained: int, factor: float, **options: Any) -> None:
        super().__init__(head_dim, rows=trained, **options)

    def stretch(self, length: int) -> None:
        """Rewrite a table that is too short, at the base of this length."""
        if length > self.rows:
            self.base = base_for(length)
            self._write(length, self.cos.dtype)

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines from the table of the longest sequence so far."""
        self.stretch(offset + length)
        return super().forward(length, offset)


class StretchesWhatIsStretched(StaysStretched):
    """Comes back, but forgets the base that it came from: each long sequence stretches the last one's base."""

    def stretch(self, length: int) -> None:
        """Rewrite the table for any other length."""
        if length > TRAINED:
            self.base *= base_for(length) / rotation.BASE
        self._write(max(length, TRAINED), self.cos.dtype)


class AlwaysStretches(StaysStretched):
    """One base for all lengths, as if each sequence were of 16 positions."""

    def stretch(self, length: int) -> None:
        """Rewrite the table at the base of 16 positions."""
        self.base = base_for(16)
        self._write(max(length, self.rows), self.cos.dtype)


@values
@pytest.mark.parametrize("lengths", [(6, 20, 6), (12, 12), (20, 12, 8)], ids=["back_to_short", "twice", "shrinking"])
@catches(StretchesWhatIsStretched, AlwaysStretches, cache=DynamicRotaryCache)
def test_base_follows_the_length(cache: Cache, lengths: tuple[int, ...], device: torch.device) -> None:
    """The base for a sequence depends on its length alone: not on what was asked before, and within the trained length not at all.

    huggingface/transformers#25306, huggingface/transformers#27227, vllm-project/vllm#5093, vllm-project/vllm#3488. 1.13 to 2.15.
    """
    table = cache(DIM, TRAINED, FACTOR, device=device)
    for length in lengths:
        got = table(length)[0]
    assert rotation.error(got, rotation.angles(range(length), DIM, base_for(length)).cos()) < 1e-5


@values
@catches(StaysStretched, StretchesWhatIsStretched, cache=DynamicRotaryCache)
def test_short_input_after_a_long_one(cache: Cache, device: torch.device, observe: Callable[..., None]) -> None:
    """The same short prompt gets the same rotation before and after a long one.

    huggingface/transformers#25306: the long prompt changed the answer to the short one for good. Holds on 1.13 to 2.15.
    """
    table, x = cache(DIM, TRAINED, FACTOR, device=device), uniform((1, 6, 2, DIM)).to(device)
    before = rotate(x, *table(6))
    table(40)
    off = rotation.error(rotate(x, *table(6)), before.cpu().double())
    observe("difference", off, better="lower")
    assert off == 0.0


def keep_keys_as_they_come(cache: Any, k: Tensor) -> Callable[[int], Tensor]:
    """Cached keys are turned when they are read, all by the base of the present length."""
    return lambda length: rotate(k[:, :length], *cache(length))


def keeps_turned_keys(cache: Any, k: Tensor) -> Callable[[int], Tensor]:
    """Keys are cached turned, each by the base of the length at which it came."""
    return lambda length: torch.cat([rotate(k[:, i : i + 1], *cache(1, i)) for i in range(length)], dim=1)


@values
@catches(keeps_turned_keys, keep=keep_keys_as_they_come)
def test_cached_keys_follow_the_base(keep: Callable[..., Any], device: torch.device) -> None:
    """Scores of the last token, decoded with cached keys beyond the trained length, are those of the whole sequence at once.

    huggingface/transformers#25104: keys in the cache were turned by older bases. Holds on 1.13 to 2.15.
    """
    cache = DynamicRotaryCache(DIM, TRAINED, FACTOR, device=device)
    q, k = uniform((1, 20, 1, DIM), "q").to(device), uniform((1, 20, 1, DIM), "k").to(device)
    got = (rotate(q[:, 19:], *cache(1, 19)) * keep(cache, k)(20)).sum(-1).flatten()
    base = base_for(20)
    right = (rotation.turned(q, range(20), base)[:, 19:] * rotation.turned(k, range(20), base)).sum(-1).flatten()
    assert rotation.error(got, right) < 1e-5


@values
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "nonreentrant"])
@catches(StaysStretched, StretchesWhatIsStretched, cache=DynamicRotaryCache)
def test_recomputed_forward_turns_alike(cache: Cache, reentrant: bool, device: torch.device) -> None:
    """Under gradient checkpointing a short batch has its own gradient, though a long batch ran before its backward pass.

    huggingface/transformers#25306 in training: the recomputed forward reads the table that the long batch left. Silent when sizes
    agree. Holds on 1.13 to 2.15.
    """
    table, x = cache(DIM, TRAINED, FACTOR, device=device), uniform((1, 6, 1, DIM)).to(device).requires_grad_()
    turned = checkpoint(lambda heads: rotate(heads, *table(6)).square().mul(torch.arange(DIM, device=device)), x, use_reentrant=reentrant)
    table(40)
    turned.sum().backward()
    y = x.detach().clone().requires_grad_()
    rotate(y, *RotaryCache(DIM, rows=6, device=device)(6)).square().mul(torch.arange(DIM, device=device)).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert rotation.error(x.grad, y.grad.cpu().double()) < 1e-5


class Interpolating(RotaryCache):
    """Positions divided by a factor, as linear scaling does, in the one place where angles are made."""

    factor = 4

    def _angles(self, positions: Tensor, dtype: torch.dtype, base: float) -> Tensor:
        return super()._angles(positions.to(dtype) / self.factor, dtype, base)


class ForgetsItsFactor(Interpolating):
    """Grows by code that knows the base alone."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows > self.rows:
            plain = RotaryCache(self.head_dim, rows=rows, base=self.base, device=self.cos.device)
            self.cos, self.sin = plain.cos, plain.sin


@values
@catches(ForgetsItsFactor, cache=Interpolating)
def test_growth_keeps_its_scale(cache: Cache, device: torch.device) -> None:
    """A table whose positions are scaled is scaled after it has grown, too, in its old rows and its new ones.

    vllm-project/vllm#5093 is the kin: scaling where the table is made, and not where it is made again. Holds on 1.13 to 2.15.
    """
    table = cache(DIM, rows=8, device=device)
    cos = table(20)[0]
    assert rotation.error(cos, rotation.angles(torch.arange(20) / 4, DIM).cos()) < 1e-5
