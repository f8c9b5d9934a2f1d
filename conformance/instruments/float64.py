"""What the right numbers are: plain formulas in float64 on the host, by no kernel that is under test."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conformance.instruments.weights import uniform

#: How far an answer in this dtype may be from the reference, relative and absolute.
ROUNDING = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}


def wide(tensor: Tensor) -> Tensor:
    """`tensor` in float64 on the host, without its graph."""
    return tensor.detach().cpu().double()


def heads(
    device: torch.device, queries: int = 2, keys: int = 2, length: int = 5, cached: int = 5, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a batch of 2 and width 8: `queries` and `keys` heads, `length` and `cached` positions."""
    sizes = (("query", queries, length), ("key", keys, cached), ("value", keys, cached))
    query, key, value = (uniform((2, count, size, 8), name).to(device, dtype) for name, count, size in sizes)
    return query, key, value


def causal(length: int, cached: int, window: int | None = None) -> Tensor:
    """Which of `cached` keys each of `length` queries sees when the last query stands at the last key: its own, and those before."""
    distances = [row + cached - length - column for row in range(length) for column in range(cached)]
    return torch.tensor([0 <= distance < (window or cached + 1) for distance in distances]).view(length, cached)


def attention(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None = None, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Attention in float64: query head h reads key head h // (H / G); `seen` is bool, `bias` is added; a row that sees nothing is 0."""
    query, key, value = wide(query), wide(key), wide(value)
    heads = query.size(-3) if query.dim() > 2 else 1
    if query.dim() > 2:
        key, value = (x[..., [h * x.size(-3) // heads for h in range(heads)], :, :] for x in (key, value))
    scores = torch.matmul(query, key.transpose(-2, -1)) * (query.size(-1) ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + wide(bias)
    if seen is not None:
        scores = scores.masked_fill(~seen.cpu(), -math.inf)
    largest = scores.amax(-1, keepdim=True).clamp(min=-1e300)  # -inf - -inf would be NaN
    weights = torch.exp(scores - largest)
    return torch.matmul(weights / weights.sum(-1, keepdim=True).clamp(min=1e-300), value)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """`x` over its root mean square along the last axis, times `weight`, in float64."""
    normed = wide(x) * (wide(x).pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return normed if weight is None else normed * wide(weight)


def check_close(got: Tensor, expected: Tensor, tolerance: float | None = None) -> None:
    """AssertionError unless `got` is `expected`, of float64, within the rounding of got's dtype."""
    allowed = ROUNDING[got.dtype] if tolerance is None else tolerance
    torch.testing.assert_close(wide(got), expected, rtol=allowed, atol=allowed)
