"""torch's own attention and the ways to write round what its releases lack: scale, grouped heads, masks, probes, backends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards import takes_keyword
from conformance.incell import catches, requires, values
from conformance.instruments.float64 import attention, check_close, heads

pytestmark = requires("torch.nn.functional.scaled_dot_product_attention")

Attend = Callable[..., Tensor]


def native(*arguments: Tensor, **options: object) -> Tensor:
    """torch's own, looked up when it is called: 1.13 has none."""
    return functional.scaled_dot_product_attention(*arguments, **options)


def fold_scale_into_query(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Multiply the query by what the built-in scale lacks."""
    return native(query * (scale * query.size(-1) ** 0.5), key, value)


def leaves_the_default_scale(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """A fallback that drops the argument it cannot pass on."""
    return native(query, key, value)


def scales_twice(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The query scaled, and the built-in scale forgotten."""
    return native(query * scale, key, value)


@values
@catches(leaves_the_default_scale, scales_twice, attend=fold_scale_into_query)
def test_scale_folded_into_query(attend: Attend, device: torch.device) -> None:
    """A scale of one's own holds when its ratio to the built-in one is folded into the query.

    torch documentation: `scale=` came in 2.1. 2.0 to 2.15.
    """
    query, key, value = heads(device)
    check_close(attend(query, key, value, 0.5), attention(query, key, value, scale=0.5))


def pass_the_scale(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The keyword, where there is one."""
    if not takes_keyword(native, "scale", 1.0, query, key, value):
        pytest.skip("scaled_dot_product_attention takes no scale")
    return native(query, key, value, scale=scale)


@values
@pytest.mark.parametrize("scale", [0.5, 0.0, -1.0], ids=["half", "zero", "negative"])
@catches(leaves_the_default_scale, attend=pass_the_scale)
def test_scale_native(attend: Attend, scale: float, device: torch.device) -> None:
    """The keyword `scale` is the factor of the scores, zero and negative ones included: 0 is no absence.

    torch documentation. Since 2.1.
    """
    query, key, value = heads(device)
    check_close(attend(query, key, value, scale), attention(query, key, value, scale=scale))


def repeat_heads_next_to_themselves(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Each head of keys twice in a row, as the queries of a group are."""
    return native(query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1))


def tiles_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """All heads of keys, and all again: queries of one group read another one's keys."""
    return native(query, key.repeat(1, 2, 1, 1), value.repeat(1, 4 // value.size(1), 1, 1))


@values
@catches(tiles_heads, attend=repeat_heads_next_to_themselves)
def test_heads_repeat_next_to_themselves(attend: Attend, device: torch.device) -> None:
    """Four heads of queries read two heads of keys in groups of neighbours.

    karpathy/nanochat#127: `repeat` has the right shape and the wrong order. 2.0 to 2.15.
    """
    query, key, value = heads(device, queries=4)
    check_close(attend(query, key, value), attention(query, key, value))


def group_natively(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The keyword, where there is one."""
    if not takes_keyword(native, "enable_gqa", False, key, key, value):
        pytest.skip("scaled_dot_product_attention takes no enable_gqa")
    return native(query, key, value, enable_gqa=True)


@values
@pytest.mark.parametrize("values_heads", [2, 1], ids=["two_heads", "two_of_keys_one_of_values"])
@catches(tiles_heads, attend=group_natively)
def test_grouped_heads_native(attend: Attend, values_heads: int, device: torch.device) -> None:
    """`enable_gqa` reads each head of keys by a group of neighbouring heads of queries; values may have fewer heads than keys.

    karpathy/nanochat#127. Since 2.5.
    """
    query, key, value = heads(device, queries=4)
    check_close(attend(query, key, value[:, :values_heads]), attention(query, key, value[:, :values_heads]))


def open_rows_then_empty_them(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Let a blind row see everything, and put 0 in its place afterwards."""
    blind = ~mask.any(-1, keepdim=True)
    return native(query, key, value, attn_mask=mask | blind).masked_fill(blind, 0.0)


def opens_rows_alone(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Let a blind row see everything: no NaN, and padding gets the mean of all values."""
    return native(query, key, value, attn_mask=mask | ~mask.any(-1, keepdim=True))


@values
@catches(opens_rows_alone, attend=open_rows_then_empty_them)
def test_blind_row_opened_and_emptied(attend: Attend, device: torch.device) -> None:
    """A query that sees no key gives 0 and finite gradients when its row is opened before and emptied after.

    pytorch/pytorch#103963, SalesforceAIResearch/uni2ts#133. 2.0 to 2.15.
    """
    query, key, value = (x.requires_grad_() for x in heads(device))
    mask = torch.ones(5, 5, dtype=torch.bool, device=device)
    mask[2] = False
    out = attend(query, key, value, mask)
    out.sum().backward()
    assert query.grad is not None
    assert bool(torch.isfinite(query.grad).all())
    check_close(out, attention(query, key, value, seen=mask))


def mask_from_the_offset(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Rows start where the cache ends."""
    rows = torch.arange(query.size(2), device=query.device) + (key.size(2) - query.size(2))
    return native(query, key, value, attn_mask=torch.arange(key.size(2), device=query.device) <= rows[:, None])


def leaves_causality_to_torch(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """torch's flag is aligned at the first key."""
    return native(query, key, value, is_causal=True)


@values
@catches(leaves_causality_to_torch, attend=mask_from_the_offset)
def test_decode_masked_from_the_offset(attend: Attend, device: torch.device) -> None:
    """One query after six keys sees all of them, by a mask that starts at the offset.

    pytorch/pytorch#103082: the flag shows it the first key alone. 2.0 to 2.15.
    """
    query, key, value = heads(device, length=1, cached=6)
    check_close(attend(query, key, value), attention(query, key, value))


def keep_the_last_keys(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """The query's own key and `window` before it."""
    return native(query, key[:, :, -(window + 1) :], value[:, :, -(window + 1) :])


def keeps_all_keys(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """One token needs no mask, so the window is forgotten with it."""
    return native(query, key, value)


def keeps_window_without_its_own(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """One key too few, where the window is counted without the query's own."""
    return native(query, key[:, :, -window:], value[:, :, -window:])


@values
@catches(keeps_all_keys, keeps_window_without_its_own, attend=keep_the_last_keys)
def test_window_decode_slices_keys(attend: Attend, device: torch.device) -> None:
    """One token with a window of 2 before it attends to the last 3 keys.

    karpathy/nanochat#452, karpathy/nanochat#456. 2.0 to 2.15.
    """
    query, key, value = heads(device, length=1, cached=9)
    check_close(attend(query, key, value, 2), attention(query, key[:, :, 6:], value[:, :, 6:]))
