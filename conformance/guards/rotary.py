"""Rotary position tables that grow, move and are cast without losing what they had."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from conformance.guards.capturing import is_compiling, is_tracing


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Heads `x` `(B, T, H, D)` turned by `cos`, `sin` `(T, R/2)` or, with positions of their own, `(B, T, R/2)`; result in x's dtype.

    The first R channels turn, the others pass. Pairs are channels (i, i + R/2), or (2i, 2i + 1) if `interleaved`. A pair (a, b)
    becomes (a cos + b sin, b cos - a sin), as in nanochat; Llama and GPT-NeoX turn the other way: give them `-sin`.
    Raises ValueError where the table has not as many rows as `x`: a table of one row would be spread over all positions.
    """
    if not is_tracing() and cos.size(-2) != x.size(-3):
        raise ValueError(f"{cos.size(-2)} rows of the rotary table for {x.size(-3)} positions")
    half = cos.size(-1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    turning, passing = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
        turned = [torch.stack([first * cos + second * sin, second * cos - first * sin], dim=-1).flatten(-2)]
    else:
        first, second = turning[..., :half], turning[..., half:]
        turned = [first * cos + second * sin, second * cos - first * sin]
    return torch.cat([*turned, passing], dim=-1).to(x.dtype)


def halves_from_pairs(weight: Tensor, heads: int) -> Tensor:
    """A projection to queries or keys `(H * D, C)`, or its bias `(H * D,)`, of an interleaved checkpoint, for code that pairs halves."""
    paired = weight.reshape(heads, -1, 2, *weight.shape[1:])
    return paired.transpose(1, 2).reshape(weight.shape)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


class RotaryCache(nn.Module):
    """Cosines and sines `(rows, R/2)` of a rotary embedding, in non-persistent buffers that grow when asked.

    Growth doubles at least (up to `max_rows`), computes in float32, rounds once to the dtype and device of the table that is
    there, and assigns to the same registered buffers: they stay out of the state dict, and `.to()` still moves them. Whatever
    casts, moves or empties the module has the tables computed anew, so `.half().float()` and `to_empty()` leave right ones;
    with `keep_dtype` they stay in their dtype when the module is cast. While code is captured the table cannot grow (the
    captured program would hold the old one or the new one, but not the change): it refuses, loudly.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        head_dim: int,
        rows: int = 64,
        base: float = 10000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rotary_dim: int | None = None,
        max_rows: int | None = None,
        keep_dtype: bool = False,
    ) -> None:
        super().__init__()
        self.rotary_dim = head_dim if rotary_dim is None else rotary_dim
        if self.rotary_dim % 2:
            raise ValueError(f"a rotary embedding pairs dimensions: {self.rotary_dim} is odd")
        if not 0 < self.rotary_dim <= head_dim:
            raise ValueError(f"{self.rotary_dim} dimensions of a head of {head_dim} cannot turn")
        self.head_dim, self.base, self.max_rows, self.keep_dtype = head_dim, base, max_rows, keep_dtype
        for name in ("cos", "sin"):
            empty = torch.empty(rows, self.rotary_dim // 2, device=device, dtype=dtype or torch.float32)
            self.register_buffer(name, empty, persistent=False)
        self.reset_parameters()

    @property
    def rows(self) -> int:
        """Positions that the table holds."""
        return self.cos.size(0)

    def reset_parameters(self) -> None:
        """Write the tables anew where they are, as after a loader that put empty tensors there (they are in no checkpoint)."""
        self._write(self.rows, self.cos.dtype)

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(length, R/2)` of positions offset .. offset + length - 1; IndexError for those that cannot be."""
        # Under the tracer sizes are tensors and a comparison would be frozen. `narrow` is recorded, and unlike a slice it
        # raises where the table is too short, in the captured program as well.
        if not is_tracing():
            self._prepare(length, offset)
        return self.cos.narrow(0, offset, length), self.sin.narrow(0, offset, length)

    def at(self, positions: Tensor, base: float | None = None) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(..., R/2)` of integer `positions` `(...)`, computed without the table: nothing to grow, wrap or overrun."""
        dtype = self.cos.dtype
        angles = self._angles(positions, _wide(dtype), self.base if base is None else base)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def grow_to(self, rows: int) -> None:
        """Hold at least `rows` positions; RuntimeError when that needs growth while code is captured, IndexError beyond max_rows."""
        self._check(rows)
        if rows <= self.rows:
            return
        if is_tracing():
            raise RuntimeError(f"rotary table too small while capturing: {rows} rows needed, {self.rows} held; grow_to({rows}) first")
        if is_compiling():
            self._refuse(rows)
        doubled = max(rows, 2 * self.rows)
        self._write(doubled if self.max_rows is None else min(doubled, self.max_rows), self.cos.dtype)

    def _check(self, rows: int, offset: int = 0) -> None:
        if offset < 0:
            raise IndexError("a position before the first")
        if self.max_rows is not None and rows > self.max_rows:
            raise IndexError(f"a position beyond the last of {self.max_rows}")

    def _refuse(self, rows: int) -> None:
        # Too small: call grow_to() before compiling. A `raise` would be no refusal: until 2.2 it breaks the graph, and since 2.4 dynamo
        # runs the frame uncaptured instead, where nothing is compiling and the table grows. An impossible op is never run around.
        self.cos.narrow(0, 0, rows)

    def _prepare(self, length: int, offset: int) -> None:
        self._check(offset + length, offset)
        self.grow_to(offset + length)
        # A table copied or moved by inference code; a captured program cannot rewrite it, and autograd refuses it loudly.
        if not is_compiling() and self.cos.is_inference() and not torch.is_inference_mode_enabled():
            self.reset_parameters()

    def _apply(self, *args: Any, **kwargs: Any) -> RotaryCache:
        before = self.cos
        super()._apply(*args, **kwargs)
        if self.cos is not before:  # cast, moved or emptied: rounded numbers, or memory as it was
            self._write(self.rows, before.dtype if self.keep_dtype else self.cos.dtype)
        return self

    def _angles(self, positions: Tensor, dtype: torch.dtype, base: float) -> Tensor:
        channels = torch.arange(0, self.rotary_dim, 2, dtype=dtype, device=positions.device)
        return positions.to(dtype).unsqueeze(-1) * base ** (channels / -self.rotary_dim)

    def _write(self, rows: int, dtype: torch.dtype) -> None:
        # Neither a training graph nor an inference tensor may stay behind in a cache.
        with torch.inference_mode(False), torch.no_grad():
            positions = torch.arange(rows, device=self.cos.device)
            angles = self._angles(positions, _wide(dtype), self.base)
            for name, table in (("cos", angles.cos().to(dtype)), ("sin", angles.sin().to(dtype))):
                held = getattr(self, name)
                if type(table) is not type(held):
                    raise RuntimeError("rotary table too small for a dry run with fake tensors, which would stay in it: grow_to() first")
                # Into the same memory where it fits: shared memory stays shared, and compiled code of 2.0 to 2.3 reads no other.
                if (held.shape, held.dtype) == (table.shape, table.dtype) and not held.is_inference():
                    held.copy_(table)
                else:
                    setattr(self, name, table)


class DynamicRotaryCache(RotaryCache):
    """A rotary cache whose base stretches with sequences beyond `trained` positions (dynamic NTK).

    The tables follow the length asked for alone, never what was asked before (huggingface/transformers#25306): those of the
    trained base stay as they are, those of a longer sequence are computed when asked for. Every length has another base, so a
    key-value cache must hold keys that are not yet turned (huggingface/transformers#25104).
    """

    def __init__(self, head_dim: int, trained: int, factor: float = 1.0, base: float = 10000.0, **options: Any) -> None:
        super().__init__(head_dim, rows=trained, base=base, **options)
        if self.rotary_dim == 2:
            raise ValueError("one pair alone has frequency 1 at any base")
        self.trained, self.factor = trained, factor

    def stretched(self, length: int) -> float:
        """The base for a sequence of `length` positions."""
        if length <= self.trained:
            return self.base
        stretch = self.factor * length / self.trained - (self.factor - 1)
        return self.base * float(stretch ** (self.rotary_dim / (self.rotary_dim - 2)))

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(length, R/2)` of the last `length` positions of a sequence of offset + length."""
        whole = offset + length
        if is_tracing() or whole <= self.trained:
            return super().forward(length, offset)
        self._check(whole, offset)
        return self.at(torch.arange(offset, whole, device=self.cos.device), self.stretched(whole))
