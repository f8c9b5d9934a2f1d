"""Normalisation with the same numbers on every release."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor


def _right_native() -> Callable[..., Tensor] | None:
    """torch's own rms_norm where it is right, found by its numbers: the releases that get its default eps wrong (2.4 to 2.6)
    also promote a bfloat16 result to float32 beside a float32 gain, and 2.4 freezes sizes under torch.export."""
    native: Callable[..., Tensor] | None = getattr(functional, "rms_norm", None)
    if native is None:
        return None
    small = torch.full((1, 4), 1e-3, dtype=torch.bfloat16, device="cpu")
    return native if float(native(small, (4,))[0, 0]) > 0.5 else None


_NATIVE = _right_native()


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """`x` `(..., C)` over its root mean square along C, times `weight` `(C,)`; result in x's dtype.

    Without `eps`: that of float64 for float64, else of float32, as torch has it since 2.7 (pytorch/pytorch#142848,
    pytorch/pytorch#189581). Native from 2.7; before, computed in float32 and rounded once.
    """
    if eps is None:
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    gain = None if weight is None else weight.to(x.dtype)
    if _NATIVE is not None:
        return _NATIVE(x, (x.size(-1),), gain, eps)
    wide = x if x.dtype == torch.float64 else x.float()
    normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
    return normed if gain is None else normed * gain
