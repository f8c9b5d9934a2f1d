"""Normalisation with the same numbers on every release."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor

_NATIVE = getattr(functional, "rms_norm", None)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """`x` `(..., C)` over its root mean square along C, times `weight` `(C,)`; result in x's dtype.

    Native from 2.4. Always gives it an eps: its own default for bfloat16 and float16 was finfo(x.dtype).eps in 2.4 to 2.6
    and is finfo(float32).eps since (pytorch/pytorch#142848), which is the default here on every release. The gain is cast
    to x's dtype: 2.4 to 2.6 promote the result to float32 otherwise.
    """
    if eps is None:
        eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    gain = None if weight is None else weight.to(x.dtype)
    if _NATIVE is not None:
        return _NATIVE(x, (x.size(-1),), gain, eps)
    wide = x if x.dtype == torch.float64 else x.float()
    normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
    return normed if gain is None else normed * gain
