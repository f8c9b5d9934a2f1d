"""Attention as models call it: heads permuted, fewer value channels, one query, rows that see nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, dtypes, requires, values
from conformance.instruments.layouts import in_storage_order
from conformance.instruments.weights import uniform

Attend = Callable[..., Tensor]


def _expected(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    q, k, v = (x.cpu().double() for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


def attend_natively(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """As torch has it."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def ignores_strides(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """A kernel that reads memory in order."""
    return attend_natively(*(in_storage_order(x) for x in (q, k, v)), causal=causal)


def leaks_the_next_position(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """Each query sees one key too many."""
    seen = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril(1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen if causal else None)


def _heads(name: str, length: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """`(B, H, T, D)` as nanochat makes it: the positions lie before the heads in memory."""
    return uniform((2, length, 3, width), name).to(device, dtype).permute(0, 2, 1, 3)


@values
@requires("torch.nn.functional.scaled_dot_product_attention")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("length", [4, 40], ids=["4", "40"])
@catches(ignores_strides, attend=attend_natively)
def test_permuted_heads_attend(attend: Attend, length: int, causal: bool, device: torch.device) -> None:
    """Attention over heads that were permuted, not copied, is float64's.

    pytorch/pytorch#163597, pytorch/pytorch#181133: wrong on MPS since 2.8. On the CPU right on 2.0 to 2.15.
    """
    q, k, v = (_heads(name, length, 8, device) for name in "qkv")
    got = attend(q, k, v, causal=causal)
    torch.testing.assert_close(got.cpu().double(), _expected(q, k, v, causal=causal), rtol=1e-4, atol=1e-5)


@values
@requires("torch.nn.functional.scaled_dot_product_attention")
@dtypes("float32", "bfloat16", "float16")
@catches(leaks_the_next_position, attend=attend_natively)
def test_causal_attention_sees_no_future(attend: Attend, device: torch.device, dtype: torch.dtype) -> None:
    """What comes later changes no earlier row of causal attention, in low precision too.

    pytorch/pytorch#195910: on MPS the mask leaks in float16 and bfloat16. On the CPU right on 2.0 to 2.15 (float16 since 2.1).
    """
    q, k, v = (_heads(name, 8, 8, device, dtype) for name in "qkv")
    changed = v.clone()
    changed[:, :, 5:] += 8.0
    try:
        before, after = attend(q, k, v, causal=True), attend(q, k, changed, causal=True)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        pytest.skip(str(error).splitlines()[0])
    torch.testing.assert_close(after[:, :, :5].float().cpu(), before[:, :, :5].float().cpu(), rtol=1e-3, atol=1e-3)


def cuts_values_to_keys(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """Takes the value's width for the key's."""
    return functional.pad(attend_natively(q, k, v[..., : k.size(-1)], causal=causal), (0, max(0, v.size(-1) - k.size(-1))))


@values
@requires("torch.nn.functional.scaled_dot_product_attention")
@pytest.mark.parametrize("queries", [1, 7], ids=["one", "seven"])
@catches(cuts_values_to_keys, attend=attend_natively)
def test_values_may_be_wider(attend: Attend, queries: int, device: torch.device) -> None:
    """Attention whose values are wider than its keys keeps all their channels, for one query and for more.

    pytorch/pytorch#176767, pytorch/pytorch#174861 (MPS). On the CPU right on 2.0 to 2.15.
    """
    q, k, v = (_heads(name, size, width, device) for name, size, width in (("q", queries, 4), ("k", 7, 4), ("v", 7, 6)))
    got = attend(q, k, v)
    torch.testing.assert_close(got.cpu().double(), _expected(q, k, v), rtol=1e-4, atol=1e-5)


def softmax_of_visible(scores: Tensor, hidden: Tensor) -> Tensor:
    """Rows that see nothing get zeros."""
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(hidden, 0.0)


def softmax_of_minus_infinity(scores: Tensor, hidden: Tensor) -> Tensor:
    """A row of -inf is NaN."""
    return scores.masked_fill(hidden, -math.inf).softmax(-1)


def softmax_of_lowest(scores: Tensor, hidden: Tensor) -> Tensor:
    """A row of the lowest number sees everything alike."""
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)


@values
@catches(softmax_of_minus_infinity, softmax_of_lowest, weigh=softmax_of_visible)
def test_hidden_row_weighs_nothing(weigh: Callable[..., Tensor], device: torch.device) -> None:
    """A row that sees nothing has weight zero everywhere, and the gradient through it is finite.

    pytorch/pytorch#41508, pytorch/pytorch#111416, pytorch/pytorch#55056. 1.13 to 2.15.
    """
    scores = uniform((2, 3)).to(device).requires_grad_()
    hidden = torch.tensor([[True, True, True], [False, True, False]], device=device)
    weights = weigh(scores, hidden)
    assert weights[0].tolist() == [0.0, 0.0, 0.0]
    assert float(weights[1].detach().sum()) == pytest.approx(1.0)
    weights.square().sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


def attend_and_blank(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Blind rows see all for once, and are blanked after."""
    blind = ~seen.any(-1, keepdim=True)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen | blind).masked_fill(blind, 0.0)


def attends_with_blind_rows(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """As torch has it."""
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def attends_to_all_where_blind(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """The mean of the values."""
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen | ~seen.any(-1, keepdim=True))


def _check_blind(attend: Any, device: torch.device) -> None:
    q, k, v = (_heads(name, 3, 4, device) for name in "qkv")
    seen = torch.tensor([[False, False, False], [True, False, False], [True, True, False]], device=device)
    got = attend(q, k, v, seen)
    assert float(got[:, :, 0].abs().sum()) == 0.0
    assert bool(got.isfinite().all())


@values
@requires("torch.nn.functional.scaled_dot_product_attention")
@catches(attends_to_all_where_blind, attend=attend_and_blank)
def test_left_padded_row_attends_to_nothing(attend: Any, device: torch.device) -> None:
    """A query that may see no key, as left padding makes them, gives zeros.

    pytorch/pytorch#156707 (NaN on MPS), pytorch/pytorch#103749. 2.0 to 2.15.
    """
    _check_blind(attend, device)


@values
@requires("torch.nn.functional.scaled_dot_product_attention")
@catches(attends_to_all_where_blind, attend=attends_with_blind_rows)
def test_left_padded_row_attends_to_nothing_native(attend: Any, device: torch.device) -> None:
    """`scaled_dot_product_attention` gives zeros for a query that may see no key.

    pytorch/pytorch#131060, pytorch/pytorch#133882: NaN on the CPU until 2.4, zeros since 2.5; pytorch/pytorch#156707 for MPS.
    """
    _check_blind(attend, device)
