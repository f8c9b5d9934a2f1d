"""Attention given several masks, or masks of unusual dtypes: they combine, or are refused, never ignored."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards import sdpa
from conformance.incell import catches, dtypes, requires, values
from conformance.instruments.float64 import attention, causal, check_close, heads
from conformance.instruments.weights import uniform

Attend = Callable[..., Tensor]


def combine_in_guard(query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> Tensor:
    """The guard, given both."""
    return sdpa(query, key, value, mask=padding, causal=True)


def causal_alone(query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> Tensor:
    """Padding is forgotten where causality is asked for."""
    return sdpa(query, key, value, causal=True)


def padding_alone(query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> Tensor:
    """`is_causal = mask is None`, as many a wrapper has it: a padding mask makes the decoder look ahead."""
    return sdpa(query, key, value, mask=padding, causal=padding is None)


def _padding(kind: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Left padding of a batch of two, as a mask for attention, and as bool."""
    seen = torch.tensor([[True] * 5, [False, False, True, True, True]])[:, None, None, :]
    return (seen if kind == "bool" else torch.zeros(seen.shape).masked_fill(~seen, -math.inf)).to(device), seen


@values
@pytest.mark.parametrize("kind", ["bool", "float"])
@catches(causal_alone, padding_alone, attend=combine_in_guard)
def test_causal_and_padding_combine(attend: Attend, kind: str, device: torch.device) -> None:
    """A causal mask and a mask of left padding hold together; rows of padding alone are 0.

    pytorch/pytorch#101531 asks for both. torch refuses them together until 2.3 and again in 2.15, observed here. 1.13 to 2.15.
    """
    query, key, value = heads(device)
    mask, seen = _padding(kind, device)
    check_close(attend(query, key, value, mask), attention(query, key, value, seen=seen & causal(5, 5)))


def combine_natively(query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> Tensor:
    """torch's own flag and mask at once."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=padding, is_causal=True)


@values
@requires("torch.nn.functional.scaled_dot_product_attention")
@catches(causal_alone, padding_alone, attend=combine_natively)
def test_causal_and_padding_native(attend: Attend, device: torch.device) -> None:
    """torch's own attention takes a causal flag and a mask together.

    pytorch/pytorch#101531, pytorch/pytorch#118972: documented to raise. Observed here on the CPU: refused from 2.0 to 2.2 and
    since 2.14, combined in 2.3 to 2.13.
    """
    query, key, value = heads(device)
    seen = torch.ones(5, 5, dtype=torch.bool, device=device)
    seen[:, 3] = False
    check_close(attend(query, key, value, seen), attention(query, key, value, seen=seen.cpu() & causal(5, 5)))


def bias_for_query(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """The guard casts the bias to the query's dtype."""
    return sdpa(query, key, value, mask=bias)


def takes_bias_for_bool(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """A mask of another dtype read as true or false."""
    return sdpa(query, key, value, mask=bias != 0)


@values
@dtypes("float32", "bfloat16", "float16")
@catches(takes_bias_for_bool, attend=bias_for_query)
def test_bias_of_another_dtype(attend: Attend, dtype: torch.dtype, device: torch.device) -> None:
    """A float32 bias beside a query of low precision is added to the scores, and the answer has the query's dtype.

    Observed here: torch's own refuses it until 2.2 and takes it from 2.4. Needed until then.
    """
    query, key, value = heads(device, length=4, cached=4, dtype=dtype)
    bias = uniform((4, 4), "bias").to(device)
    out = attend(query, key, value, bias)
    assert out.dtype == dtype
    check_close(out, attention(query, key, value, bias=bias))


def refuses_integers(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> bool:
    """The guard says what it takes."""
    try:
        sdpa(query, key, value, mask=mask)
    except TypeError:
        return True
    return False


def adds_integers(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> bool:
    """A tokenizer's mask of 0 and 1, cast until it is taken: it adds 1 to what should be seen and 0 to what should not."""
    sdpa(query, key, value, mask=mask.to(query.dtype))
    return False


@catches(adds_integers, refuse=refuses_integers)
def test_integer_mask_is_refused(refuse: Callable[..., bool], device: torch.device) -> None:
    """A mask of integers 0 and 1, as tokenizers make, is refused rather than added.

    Observed here: torch refuses it too, 2.0 to 2.15; a cast to float, which is the next thing that one tries, is added in silence.
    """
    query, key, value = heads(device, length=4, cached=4)
    assert refuse(query, key, value, torch.ones(4, 4, dtype=torch.int64, device=device))


def window_needs_causality(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """The guard refuses a window without a direction."""
    with pytest.raises(ValueError, match="causal"):
        sdpa(query, key, value, window=2)
    return True


def ignores_the_window(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """An option that has no meaning here, swallowed."""
    sdpa(query, key, value)
    return False


@catches(ignores_the_window, ask=window_needs_causality)
def test_window_alone_is_refused(ask: Callable[..., bool], device: torch.device) -> None:
    """A window without causality is refused rather than ignored.

    karpathy/nanochat#452: an option that the fallback swallowed. 1.13 to 2.15.
    """
    assert ask(*heads(device, length=4, cached=4))
