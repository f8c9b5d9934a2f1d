"""A rotary table that grows: what it must keep, how often it may be rebuilt, and where it must stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, dtypes, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.bits import same_bits

Cache = Callable[..., RotaryCache]
Observe = Callable[..., None]


def tables(rows: int, dim: int, device: Any, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of angles that are made in `dtype` from the first number to the last."""
    channels = torch.arange(0, dim, 2, device=device).to(dtype)
    angles = torch.arange(rows, device=device).to(dtype)[:, None] * (10000.0 ** (channels.float() / -dim)).to(dtype)[None, :]
    return angles.float().cos().to(dtype), angles.float().sin().to(dtype)


class ForgetsItsDtype(RotaryCache):
    """Grows in float32 and leaves it there."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        self.cos, self.sin = tables(rows, self.rotary_dim, self.cos.device)


class ComputesInItsDtype(RotaryCache):
    """Grows in the dtype of the table: positions and frequencies are rounded first."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        self.cos, self.sin = tables(rows, self.rotary_dim, self.cos.device, self.cos.dtype)


@values
@dtypes("bfloat16", "float16")
@catches(ForgetsItsDtype, ComputesInItsDtype, cache=RotaryCache)
def test_growth_keeps_dtype(cache: Cache, device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    """A low-precision table that grows keeps its dtype, and holds float32 numbers rounded once.

    huggingface/transformers#24203, huggingface/transformers#24262, karpathy/nanochat#612. Holds on 1.13 to 2.15.
    """
    table = cache(16, rows=16, device=device).to(dtype)
    table.grow_to(1024)
    off = rotation.error(table.cos[:1024], rotation.angles(range(1024), 16).cos())
    observe("error", off, better="lower")
    assert (table.cos.dtype, table.sin.dtype) == (dtype, dtype)
    assert table.cos.device.type == device.type
    assert off < torch.finfo(dtype).eps


class SqueezesPositions(RotaryCache):
    """Grows by interpolation: the positions of the longer table are squeezed into the old range."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        self.cos, self.sin = (t[:rows] for t in self.at(torch.arange(rows, device=self.cos.device) * self.rows // rows))


@values
@dtypes("float32", "bfloat16")
@catches(SqueezesPositions, cache=RotaryCache)
def test_growth_keeps_rows(cache: Cache, device: torch.device, dtype: torch.dtype) -> None:
    """The rows that a table had are the first rows of the grown one, bit for bit: keys that are cached stay comparable.

    karpathy/nanochat#520. Holds on 1.13 to 2.15.
    """
    table = cache(16, rows=8, device=device, dtype=dtype)
    cos, sin = table.cos.clone(), table.sin.clone()
    table.grow_to(100)
    assert same_bits(table.cos[:8], cos)
    assert same_bits(table.sin[:8], sin)


class StaysWhereItWasBuilt(RotaryCache):
    """Grows on the device that it was built on."""

    def __init__(self, head_dim: int, **options: Any) -> None:
        super().__init__(head_dim, **options)
        self.home = self.cos.device

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        self.cos, self.sin = tables(rows, self.rotary_dim, self.home)


@values
@catches(StaysWhereItWasBuilt, cache=RotaryCache)
def test_growth_happens_where_the_table_is(cache: Cache, device: torch.device) -> None:
    """A table that was moved grows on the device where it is now; meta stands in for the other device.

    lucidrains/rotary-embedding-torch#48, pytorch/torchtitan#164. Holds on 1.13 to 2.15.
    """
    table = cache(16, rows=8, device=device).to("meta")
    table.grow_to(100)
    assert (table.cos.device.type, table.sin.device.type) == ("meta", "meta")


class GrowsExactly(RotaryCache):
    """Holds what is asked for and no more."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows > self.rows:
            self._write(rows, self.cos.dtype)


class RebuildsWhenDifferent(RotaryCache):
    """Compares lengths with `!=`: a shorter input rebuilds the table too."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows != self.rows:
            self._write(rows, self.cos.dtype)


@catches(GrowsExactly, RebuildsWhenDifferent, cache=RotaryCache)
def test_growth_is_rare(cache: Cache, device: torch.device, observe: Observe) -> None:
    """Decoding 64 tokens past an 8-row table, then a short prompt, rebuilds the table at most 4 times.

    TransformerLensOrg/TransformerLens#1457 (a rebuild per token: 64), facebookresearch/xformers#728 (`!=`: 73). 1.13 to 2.15.
    """
    table, growths = cache(4, rows=8, device=device), 0
    for length in [*range(1, 73), 5]:
        before = table.cos
        table(length)
        growths += table.cos is not before
    observe("growths", growths, better="lower")
    observe("rows", table.rows, better="lower")
    assert growths <= 4


class DoublesBeyondItsEnd(RotaryCache):
    """Doubles, whatever the end."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows > self.rows:
            self._write(2 * max(rows, self.rows), self.cos.dtype)


@catches(DoublesBeyondItsEnd, cache=RotaryCache)
def test_growth_stops_at_its_end(cache: Cache, device: torch.device, observe: Observe) -> None:
    """A table with `max_rows` never holds more, and refuses positions beyond: a model has no meaning there.

    karpathy/nanochat#520 (growth without an end). Holds on 1.13 to 2.15.
    """
    table = cache(4, rows=8, max_rows=20, device=device)
    table(11)
    table(20)
    observe("rows", table.rows, better="lower")
    assert table.rows == 20
    with pytest.raises(IndexError):
        table(1, offset=20)


class WritesIntoTheOldTable(RotaryCache):
    """Grows in place: a larger table is written over the one that was handed out."""

    @torch.no_grad()
    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        for table, new in zip((self.cos, self.sin), tables(rows, self.rotary_dim, self.cos.device)):
            table.resize_(new.shape).copy_(new)


@values
@catches(Twin(WritesIntoTheOldTable, "raises"), cache=RotaryCache)
def test_growth_between_forward_and_backward(cache: Cache, device: torch.device) -> None:
    """A table that grows between a forward pass and its backward pass leaves that pass its old rows.

    Dao-AILab/flash-attention#299 is the kin. In place autograd notices, on 1.13 to 2.15.
    """
    table = cache(4, rows=8, device=device)
    x = torch.ones(1, 6, 1, 4, device=device, requires_grad=True)
    turned = rotate(x, *table(6))
    table.grow_to(32)
    turned[..., :2].sum().backward()
    angle = rotation.angles(range(6), 4)
    assert x.grad is not None
    assert rotation.error(x.grad[0, :, 0], torch.cat([angle.cos(), angle.sin()], dim=-1)) < 1e-5


class ForgetsNegative(RotaryCache):
    """Slices from the end when it is given a negative offset."""

    def forward(self, length: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines from `offset`."""
        self.grow_to(offset + length)
        return self.cos[offset:][:length], self.sin[offset:][:length]


@catches(ForgetsNegative, cache=RotaryCache)
def test_negative_offset_is_refused(cache: Cache, device: torch.device) -> None:
    """A position before the first one is refused, never read from the end of the table.

    Observed here: `table[-1:]` and `narrow(0, -1, 1)` give the last row in silence, on 1.13 to 2.15.
    """
    with pytest.raises(IndexError):
        cache(4, rows=8, device=device)(1, offset=-1)
