"""Attention masks whose sizes follow the input, in eager code and in a captured program alike.

Sizes go into the factories as they come from `.size()`, fills are Python floats, and positions are made beside a tensor of
the input so that the program can move to another device.
"""

from __future__ import annotations

import torch
from torch import Tensor


def visible(queries: Tensor, keys: Tensor, window: int | None = None) -> Tensor:
    """Bool `(T, S)`: key position `keys` `(S,)` is not after query position `queries` `(T,)`, nor `window` or more before it."""
    distance = queries[:, None] - keys[None, :]
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def positions_like(x: Tensor, dim: int = 1) -> Tensor:
    """int64 `(T,)` 0 .. T-1 for the size of `x` along `dim`, on x's device in eager code and in a trace.

    A cumulated sum of ones that arithmetic makes of `x`: `arange(device=x.device)` would freeze the device of the example, on
    torch 2.0 `ones_like(x, dtype=...)` would too, and `x.to(...)` makes torch.export assert that device.
    """
    line = x
    for axis in range(x.dim() - 1, -1, -1):
        if axis != dim % x.dim():
            line = line.select(axis, 0)
    return ((line != line) * 0 + 1).cumsum(0) - 1  # NaN or not, bool times int is int64


def causal_mask(x: Tensor, past: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Additive mask `(1, 1, T, past + T)` for `x` `(B, T, ...)` after `past` keys: 0 where visible, dtype's lowest elsewhere."""
    own = positions_like(x)
    before = torch.arange(past).type_as(own)
    hidden = ~visible(own + past, torch.cat([before, own + past]))
    return hidden.to(dtype).masked_fill(hidden, torch.finfo(dtype).min)[None, None]


def padding_mask(lengths: Tensor, longest: Tensor | int) -> Tensor:
    """Bool `(B, longest)`: position is inside the sequence of `lengths` `(B,)`. Pass `lengths.max()` itself, not its int()."""
    return torch.arange(longest).type_as(lengths)[None, :] < lengths[:, None]
