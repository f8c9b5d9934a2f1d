"""Attention under masks: rows that see nothing, causality after cached keys, windows, masks that combine."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards import sdpa
from conformance.incell import catches, requires, values
from conformance.instruments.float64 import attention, causal, check_close, heads

Attend = Callable[..., Tensor]
LOWEST = torch.finfo(torch.float32).min


def blind_row(kind: str, device: torch.device) -> Tensor:
    """A (4, 4) mask whose row 2 sees nothing, of each kind that code in the wild makes."""
    hidden = torch.zeros(4, 4, dtype=torch.bool, device=device)
    hidden[2] = True
    additive = torch.zeros(4, 4, device=device)
    return {"bool": ~hidden, "inf": additive.masked_fill(hidden, -math.inf), "twice_lowest": additive.masked_fill(hidden, LOWEST) * 2}[kind]


def softmaxes_blindly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The textbook formula: a row of minus infinities is 0 / 0."""
    scores = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ value


def empties_the_row_afterwards(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Replace NaN in the output: the gradients keep it."""
    return softmaxes_blindly(query, key, value, mask).nan_to_num(0.0)


def attend_natively(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """torch's own."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _check_blind_row(attend: Attend, kind: str, device: torch.device) -> None:
    query, key, value = (x.requires_grad_() for x in heads(device, length=4, cached=4))
    out = attend(query, key, value, blind_row(kind, device))
    out.sum().backward()
    assert out[:, :, 2].abs().max().item() == 0.0
    assert all(bool(torch.isfinite(x.grad).all()) for x in (query, key, value))
    check_close(out, attention(query, key, value, seen=blind_row("bool", device)))


KINDS = pytest.mark.parametrize("kind", ["bool", "inf", "twice_lowest"])


@values
@KINDS
@catches(softmaxes_blindly, empties_the_row_afterwards, attend=sdpa)
def test_blind_row_is_zero(attend: Attend, kind: str, device: torch.device) -> None:
    """A query that sees no key gives exactly 0 and finite gradients.

    pytorch/pytorch#103963, pytorch/pytorch#133882, SalesforceAIResearch/uni2ts#133. Two additive masks of the lowest float make
    the same row by overflow. 1.13 to 2.15.
    """
    _check_blind_row(attend, kind, device)


@values
@KINDS
@requires("torch.nn.functional.scaled_dot_product_attention")
@catches(softmaxes_blindly, attend=attend_natively)
def test_blind_row_native(attend: Attend, kind: str, device: torch.device) -> None:
    """torch's own attention gives 0 and finite gradients for a query that sees no key.

    pytorch/pytorch#103963, pytorch/pytorch#133882. NaN in output and gradients from 2.0 to 2.4; right since 2.5.
    """
    _check_blind_row(attend, kind, device)


def align_at_the_end(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The guard's causal mask."""
    return sdpa(query, key, value, causal=True)


def aligns_at_the_start(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What `is_causal=True` does: query i sees keys 0 .. i, however many are cached."""
    seen = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
    return sdpa(query, key, value, mask=seen)


def forgets_the_mask(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causality dropped because the lengths differ; one query alone hides it."""
    return sdpa(query, key, value)


@values
@pytest.mark.parametrize(("length", "keys"), [(3, 7), (2, 5), (5, 3)], ids=["3_of_7", "2_of_5", "more_queries"])
@catches(aligns_at_the_start, forgets_the_mask, attend=align_at_the_end)
def test_causal_after_cached_keys(attend: Attend, length: int, keys: int, device: torch.device) -> None:
    """Queries after cached keys see all that came before them; queries before the first key see nothing.

    pytorch/pytorch#103082. 1.13 to 2.15.
    """
    query, key, value = heads(device, length=length, cached=keys)
    check_close(attend(query, key, value), attention(query, key, value, seen=causal(length, keys)))


@values
@catches(aligns_at_the_start, attend=align_at_the_end)
def test_decode_sees_the_whole_cache(attend: Attend, device: torch.device) -> None:
    """One causal query after six cached keys attends to all of them.

    pytorch/pytorch#103082: `is_causal=True` gives the first value back. 1.13 to 2.15.
    """
    query, key, value = heads(device, length=1, cached=6)
    check_close(attend(query, key, value), attention(query, key, value))


def window_from_guard(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """The guard's window: the number of keys seen, a query's own included."""
    return sdpa(query, key, value, causal=True, window=window)


def forgets_the_window(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Causal over everything."""
    return sdpa(query, key, value, causal=True)


def sees_one_key_more(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """The window counted without the query's own key, as flash-attention's `window_size=(left, 0)` is."""
    return sdpa(query, key, value, causal=True, window=window + 1)


@values
@pytest.mark.parametrize(("length", "keys"), [(6, 6), (1, 9), (3, 7)], ids=["prefill", "decode", "chunk"])
@catches(forgets_the_window, sees_one_key_more, attend=window_from_guard)
def test_window_holds_for_cached_keys(attend: Attend, length: int, keys: int, device: torch.device) -> None:
    """A sliding window of 3 shows each query its own key and the two before it: in prefill, in decoding, and in between.

    karpathy/nanochat#452, karpathy/nanochat#456: the fallback for one token saw everything. 1.13 to 2.15.
    """
    query, key, value = heads(device, length=length, cached=keys)
    check_close(attend(query, key, value, 3), attention(query, key, value, seen=causal(length, keys, 3)))
