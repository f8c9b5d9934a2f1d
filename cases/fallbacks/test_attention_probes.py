"""Probing what torch's attention takes: a builtin whose signature cannot be read."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards import release_number, takes_keyword
from conformance.incell import Twin, catches, requires
from conformance.instruments.float64 import heads

pytestmark = requires("torch.nn.functional.scaled_dot_product_attention")


def native(*arguments: Tensor, **options: object) -> Tensor:
    """torch's own, looked up when it is called: 1.13 has none."""
    return functional.scaled_dot_product_attention(*arguments, **options)


KEYWORDS = ("enable_gqa", "scale", "window")
"""Since 2.5, since 2.1, and one that no release has."""


def truth(keyword: str, device: torch.device) -> bool:
    """Whether the keyword does what it says, on inputs that tell."""
    query, key, value = heads(device, queries=4, keys=2 if keyword == "enable_gqa" else 4)
    try:
        return native(query, key, value, **{keyword: {"enable_gqa": True, "scale": 2.0, "window": 2}[keyword]}).shape == query.shape
    except TypeError:
        return False


def call_and_see(keyword: str, device: torch.device) -> bool:
    """Try the call; a TypeError says no."""
    return takes_keyword(native, keyword, {"enable_gqa": False, "scale": 1.0, "window": 1}[keyword], *heads(device))


def reads_the_signature(keyword: str, device: torch.device) -> bool:
    """A builtin has none to read."""
    return keyword in inspect.signature(functional.scaled_dot_product_attention).parameters


@pytest.mark.parametrize("keyword", KEYWORDS)
@catches(Twin(reads_the_signature, "raises"), probe=call_and_see)
def test_probe_of_a_keyword(probe: Callable[..., bool], keyword: str, device: torch.device, observe: Callable[..., None]) -> None:
    """A probe of what attention takes says what a call says.

    PriorLabs/TabPFN#418, QwenLM/Qwen-Image#65. `inspect.signature` of the builtin raises on 2.0 to 2.15.
    """
    observe("takes", truth(keyword, device))
    assert probe(keyword, device) == truth(keyword, device)


def forgets_to_say_no(keyword: str, device: torch.device) -> bool:
    """Failure leaves the answer as it was."""
    answer = True
    with contextlib.suppress(TypeError, RuntimeError):
        native(*heads(device), **{keyword: True})
    return answer


@catches(forgets_to_say_no, probe=call_and_see)
def test_probe_can_say_no(probe: Callable[..., bool], device: torch.device) -> None:
    """A probe says no to a keyword that no release has.

    PriorLabs/TabPFN#418: an except branch that left the answer at yes. 2.0 to 2.15.
    """
    assert not probe("window", device)


def test_probe_without_no_native(device: torch.device) -> None:
    """A probe that cannot say no is right about `enable_gqa`: since 2.5 by luck; until 2.4 it says yes to what is not there.

    PriorLabs/TabPFN#418, QwenLM/Qwen-Image#65.
    """
    assert forgets_to_say_no("enable_gqa", device) == truth("enable_gqa", device)


def test_probe_by_release_native(device: torch.device) -> None:
    """A gate by the release's numbers is right about `enable_gqa`, which came in 2.5.

    QwenLM/Qwen-Image#65. 2.0 to 2.15; the same gate by text is wrong again from 2.10 on.
    """
    assert (release_number() >= (2, 5)) == truth("enable_gqa", device)
