"""Equal numbers under other strides, and the mistake of a kernel that ignores strides, for ops that must not care."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def transposed(x: Tensor) -> Tensor:
    """The last two dimensions lie in memory in the other order."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() > 1 else x


def rotated(x: Tensor) -> Tensor:
    """The first dimension lies innermost, as after `permute`."""
    return x.movedim(0, -1).contiguous().movedim(-1, 0)


def sliced(x: Tensor) -> Tensor:
    """Every second element of a tensor twice as wide, from an offset: no dimension has stride 1."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.size(-1) + 2, dtype=x.dtype, device=x.device)
    wide[..., 2::2] = x
    return wide[..., 2::2]


#: Name -> function that lays a tensor out anew.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {"transposed": transposed, "rotated": rotated, "sliced": sliced}


def in_storage_order(x: Tensor) -> Tensor:
    """What a kernel sees that takes `x` for contiguous: the shape is right, the elements are those that lie first in memory."""
    return x.detach().as_strided(x.shape, torch.empty(x.shape, device="meta").stride(), 0)
