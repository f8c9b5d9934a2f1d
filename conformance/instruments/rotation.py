"""The rotary embedding by its definition, in float64 on the CPU: what cases hold tables and rotations against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BASE = 10000.0


def angles(positions: Sequence[int] | Tensor, dim: int, base: float = BASE) -> Tensor:
    """Radians `(..., dim/2)`, float64: position times base ** (-2i/dim)."""
    steps = torch.as_tensor(positions).cpu().double()
    return steps[..., None] * base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def turned(x: Tensor, positions: Sequence[int] | Tensor, base: float = BASE, *, interleaved: bool = False) -> Tensor:
    """`x` `(B, T, H, D)` times exp(-i angle) of positions `(T,)` or `(B, T)`, its pairs taken for complex numbers; float64."""
    wide = x.detach().cpu().double()
    half = x.size(-1) // 2
    first, second = (wide[..., 0::2], wide[..., 1::2]) if interleaved else (wide[..., :half], wide[..., half:])
    angle = angles(positions, x.size(-1), base).unsqueeze(-2)
    product = torch.complex(first, second) * torch.polar(torch.ones_like(angle), -angle)
    if interleaved:
        return torch.view_as_real(product).flatten(-2)
    return torch.cat([product.real, product.imag], dim=-1)


def error(got: Tensor, expected: Tensor) -> float:
    """The largest absolute difference; infinite where a number is none or shapes differ, so that it is never taken for small."""
    if got.shape != expected.shape:
        return float("inf")
    distance = (got.detach().cpu().double() - expected).abs()
    return float("inf") if bool(torch.isnan(distance).any()) else float(distance.max())
