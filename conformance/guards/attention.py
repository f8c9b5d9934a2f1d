"""Scaled dot-product attention with the same numbers on every release."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards.capturing import is_tracing
from conformance.guards.masks import visible


def _native() -> tuple[Callable[..., Tensor] | None, bool]:
    """torch's own attention where it takes a scale (2.1), and whether a query that sees no key gives 0 there (2.5) or NaN."""
    native: Callable[..., Tensor] | None = getattr(functional, "scaled_dot_product_attention", None)
    if native is None:
        return None, False
    one, nothing = torch.ones(1, 1, 1, 8, device="cpu"), torch.zeros(1, 1, dtype=torch.bool, device="cpu")
    try:
        blind = native(one, one, one, attn_mask=nothing, scale=1.0)
    except TypeError:
        return None, False
    return native, bool((blind == 0).all())


_NATIVE, _RIGHT_WITH_MASKS = _native()


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of `query` `(..., H, T, D)` to `key` `(..., G, S, D)` and `value` `(..., G, S, E)`, H a multiple of G: `(..., H, T, E)`.

    `mask`, broadcast to `(..., H, T, S)`, is bool (True is seen) or floating (added to the scores in query's dtype). `causal` is
    aligned at the end, so that T queries after S - T cached keys see what came before them; `window` then is the number of
    keys seen, a query's own included. Masks combine. A query that sees no key gives 0, with finite gradients. `dropout` drops
    whenever it is not 0: pass `p if self.training else 0.0`.

    Native where that is right: without a mask from 2.1, with one from 2.5 (pytorch/pytorch#103963); else composed, in float32
    for low precision. Needed for a scale on 2.0, grouped heads until 2.4, masked rows until 2.4, a causal mask beside another
    one on every release (seen to take both: 2.3 to 2.13), and a causal mask after cached keys on every release.
    """
    if window is not None and not causal:
        raise ValueError("a window is counted back from each query's own key: it needs causal=True")
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"mask is {mask.dtype}: bool (True is seen) or floating (added); a mask of 0 and 1 would be added as it is")
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    # Under the tracer sizes are tensors and a comparison would be frozen: there the mask is always built.
    square = not is_tracing() and query.size(-2) == key.size(-2)
    aligned = causal and mask is None and window is None and square
    if causal and not aligned:
        mask = _and_causal(mask, query, key, window)
    elif mask is not None and mask.dtype != torch.bool:
        mask = mask.to(query.dtype)
    if _NATIVE is not None and (_RIGHT_WITH_MASKS or (mask is None and _has_kernel(query))):
        key, value = _repeated(query, key), _repeated(query, value)
        return _NATIVE(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=aligned, scale=scale)
    if aligned:
        mask = _and_causal(None, query, key, None)
    return _composed(query, _repeated(query, key), _repeated(query, value), mask, scale, dropout)


def _has_kernel(query: Tensor) -> bool:
    """The CPU has no float16 matmul until 2.1."""
    return query.is_cuda or query.dtype != torch.float16


def _repeated(query: Tensor, grouped: Tensor) -> Tensor:
    """Heads repeated next to themselves, as the queries of a group are: head h of the query reads head h // (H / G)."""
    if query.dim() < 3 or query.size(-3) == grouped.size(-3):
        return grouped
    if query.size(-3) % grouped.size(-3):
        raise ValueError(f"{query.size(-3)} heads of queries cannot share {grouped.size(-3)} heads of keys or values evenly")
    return grouped.repeat_interleave(query.size(-3) // grouped.size(-3), dim=-3)


def _and_causal(mask: Tensor | None, query: Tensor, key: Tensor, window: int | None) -> Tensor:
    keys = torch.arange(key.size(-2), device=query.device)
    queries = torch.arange(query.size(-2), device=query.device) + (key.size(-2) - query.size(-2))
    seen = visible(queries, keys, window)
    if mask is None:
        return seen
    return mask & seen if mask.dtype == torch.bool else mask.to(query.dtype).masked_fill(~seen, -math.inf)


def _composed(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float) -> Tensor:
    wide = query.dtype if query.dtype in (torch.float32, torch.float64) else torch.float32
    scores = (query.to(wide) * scale) @ key.to(wide).transpose(-2, -1)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.to(wide)
        blind = (scores == -math.inf).all(-1, keepdim=True)
        # Opened before the softmax and emptied after it: NaN must appear nowhere, or it comes back with the gradients.
        weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return (functional.dropout(weights, dropout, training=dropout > 0.0) @ value.to(wide)).to(query.dtype)
