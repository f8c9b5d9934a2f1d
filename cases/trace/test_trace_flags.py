"""Flags of attention under torch.jit.trace: a comparison of sizes is refused, a cast one is frozen, a mask is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards.masks import positions_like, visible
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.capture import trace
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def attend_by_mask(q: Tensor, k: Tensor) -> Tensor:
    """The mask is data: the last query sees all keys."""
    own, keys = positions_like(q[0, 0], 0), positions_like(k[0, 0], 0)
    return functional.scaled_dot_product_attention(q, k, k, attn_mask=visible(own + (k.shape[-2] - q.shape[-2]), keys))


def casts_flag_to_bool(q: Tensor, k: Tensor) -> Tensor:
    """`is_causal` is that of the example."""
    return functional.scaled_dot_product_attention(q, k, k, is_causal=bool(q.shape[-2] > 1))


@requires("torch.nn.functional.scaled_dot_product_attention")
@catches(casts_flag_to_bool, attend=attend_by_mask)
def test_causal_flag_is_not_frozen(attend: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """Attention traced on a prompt is right for one further token when causality is a mask, not a flag.

    pytorch/pytorch#115262, huggingface/transformers#35791: silent. 2.0 to 2.15.
    """
    inputs = {
        "prompt4": (uniform((1, 1, 4, 8)).to(device), uniform((1, 1, 4, 8), "k").to(device)),
        "prompt6": (uniform((1, 1, 6, 8)).to(device), uniform((1, 1, 6, 8), "k").to(device)),
        "decode": (uniform((1, 1, 1, 8)).to(device), uniform((1, 1, 6, 8), "k").to(device)),
    }
    assert check_trace(attend, inputs, observe, stage).warned == ()


def flag_from_size(q: Tensor, k: Tensor) -> Tensor:
    """A comparison of sizes is a tensor while tracing."""
    return functional.scaled_dot_product_attention(q, k, k, is_causal=q.shape[-2] > 1)


@requires("torch.nn.functional.scaled_dot_product_attention")
@catches(casts_flag_to_bool, attend=flag_from_size)
def test_flag_from_size_is_refused(attend: Code, device: torch.device) -> None:
    """A flag computed from a size is refused by the tracer, not frozen in silence.

    pytorch/pytorch#115262; the same in karpathy/nanochat's `enable_gqa=q.size(1) != k.size(1)`. 2.0 to 2.15.
    """
    x = uniform((1, 1, 4, 8)).to(device)
    with pytest.raises(TypeError, match="must be bool"):
        trace(attend, (x, x))
