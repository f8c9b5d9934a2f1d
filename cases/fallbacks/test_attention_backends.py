"""The switch of attention's backends: a choice ends with its block, and no choice is loud."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards import find_attribute
from conformance.incell import catches, requires, values
from conformance.instruments.float64 import attention, check_close, heads

pytestmark = requires("torch.nn.attention.sdpa_kernel")

BACKENDS = ("flash_sdp_enabled", "math_sdp_enabled", "mem_efficient_sdp_enabled", "cudnn_sdp_enabled")


def enabled() -> list[bool]:
    """The switches of those backends that this release has."""
    found = [getattr(torch.backends.cuda, name, None) for name in BACKENDS]
    return [bool(probe()) for probe in found if probe is not None]


def choose_in_a_context(attend: Callable[[], Tensor]) -> Tensor:
    """The context manager puts back what it switched."""
    attention_module = find_attribute("torch.nn.attention")
    with attention_module.sdpa_kernel(attention_module.SDPBackend.MATH):
        return attend()


def switches_for_good(attend: Callable[[], Tensor]) -> Tensor:
    """The process-wide switches, left as they are when the call raises."""
    torch.backends.cuda.enable_flash_sdp(False)
    out = attend()
    torch.backends.cuda.enable_flash_sdp(True)
    return out


@values
@catches(switches_for_good, choose=choose_in_a_context)
def test_backend_choice_ends_with_its_block(choose: Callable[..., Tensor], device: torch.device) -> None:
    """A choice of attention's backend gives the same numbers and is undone after its block, an exception included.

    torch documentation: `torch.nn.attention.sdpa_kernel` since 2.3. `torch.backends.cuda.sdp_kernel` warns since 2.4, observed here.
    """
    query, key, value = heads(device)
    before = enabled()
    try:
        check_close(choose(lambda: functional.scaled_dot_product_attention(query, key, value)), attention(query, key, value))
        with pytest.raises(RuntimeError):
            choose(lambda: functional.scaled_dot_product_attention(query, key[..., :4], value))
        assert enabled() == before
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


def choose_none(attend: Callable[[], Tensor]) -> Tensor:
    """No backend at all."""
    with find_attribute("torch.nn.attention").sdpa_kernel([]):
        return attend()


@values
@catches(switches_for_good, choose=choose_none)
def test_no_backend_is_loud(choose: Callable[..., Tensor], device: torch.device) -> None:
    """Attention with every backend switched off raises rather than taking one.

    torch documentation of sdpa_kernel. Since 2.3.
    """
    query, key, value = heads(device)
    with pytest.raises(RuntimeError, match="backend"):
        choose(lambda: functional.scaled_dot_product_attention(query, key, value))
