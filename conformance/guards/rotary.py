"""Rotary position tables that grow without losing what they had."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from conformance.guards.capturing import is_compiling, is_tracing


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads `x` `(B, T, H, D)` turned by `cos`, `sin` `(T, D/2)`, halves paired; result in x's dtype."""
    half = x.size(-1) // 2
    first, second = x[..., :half], x[..., half:]
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1).to(x.dtype)


class RotaryCache(nn.Module):
    """Cosines and sines `(rows, D/2)` of a rotary embedding, in non-persistent buffers that grow when asked.

    Growth doubles at least, computes in float32, casts to the dtype and device of the table that is there, and assigns to
    the same registered buffers: they stay out of the state dict, and `.to()` still moves them. While code is captured the
    table cannot grow (the captured program would hold the old one or the new one, but not the change): it refuses, loudly.
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
    ) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"a rotary embedding pairs dimensions: head_dim={head_dim} is odd")
        self.head_dim, self.base = head_dim, base
        for name in ("cos", "sin"):
            empty = torch.empty(rows, head_dim // 2, device=device, dtype=dtype or torch.float32)
            self.register_buffer(name, empty, persistent=False)
        self.reset_parameters()

    @property
    def rows(self) -> int:
        """Positions that the table holds."""
        return self.cos.size(0)

    def reset_parameters(self) -> None:
        """Write the tables anew where they are, as after `to_empty()`."""
        self._write(self.rows)

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(length, D/2)` of positions offset .. offset + length - 1."""
        # Under the tracer sizes are tensors and a comparison would be frozen. `narrow` is recorded, and unlike a slice it
        # raises where the table is too short, in the captured program as well.
        if not is_tracing():
            self.grow_to(offset + length)
        return self.cos.narrow(0, offset, length), self.sin.narrow(0, offset, length)

    def grow_to(self, rows: int) -> None:
        """Hold at least `rows` positions; raises RuntimeError when that needs growth while code is captured."""
        if rows <= self.rows:
            return
        if is_compiling() or is_tracing():
            raise RuntimeError(f"rotary table too small while capturing: {rows} rows needed, {self.rows} held; grow_to({rows}) first")
        self._write(max(rows, 2 * self.rows))

    def _write(self, rows: int) -> None:
        # Neither a training graph nor an inference tensor may stay behind in a cache.
        with torch.inference_mode(False), torch.no_grad():
            device = self.cos.device
            channels = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device)
            positions = torch.arange(rows, dtype=torch.float32, device=device)
            angles = positions[:, None] * (self.base ** (channels / -self.head_dim))[None, :]
            for name, table in (("cos", angles.cos()), ("sin", angles.sin())):
                setattr(self, name, table.to(getattr(self, name).dtype))
