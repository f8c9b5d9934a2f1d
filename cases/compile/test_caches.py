"""Caches that are cleared between two calls: by a new tensor, or in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import call, check_compiled

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Caching(nn.Module):
    """Writes into a tensor that is no buffer."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.cache = torch.zeros(2, device=device)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """`x` `(1,)` goes to `position` `(1,)`."""
        self.cache[position] = x
        return self.cache.clone()

    def clear(self) -> None:
        """A new tensor takes the place of the old one."""
        self.cache = torch.zeros_like(self.cache)


class CachingInPlace(Caching):
    """The tensor stays; what it holds is cleared."""

    def clear(self) -> None:
        """Zero it where it is."""
        self.cache.zero_()


class NeverCleared(Caching):
    """What an unguarded graph does: it writes into the tensor it knew."""

    def clear(self) -> None:
        """Nothing happens."""


def _check_cleared(build: Code, device: torch.device, observe: Observe) -> None:
    first, second = (torch.tensor([place], device=device) for place in (0, 1))
    x = torch.tensor([2.0], device=device)
    inputs = {"first": call(x, first), "cleared": call(x / 2, second, before=lambda module: module.clear())}
    module = build(device)
    check_compiled(module, inputs, observe)
    with compiling(module) as (compiled, _):
        compiled(x, first)
        module.clear()
        assert compiled(x / 2, second).tolist() == [0.0, 1.0]


@catches(NeverCleared, build=Caching)
def test_replaced_cache_is_seen(build: Code, device: torch.device, observe: Observe) -> None:
    """A cache whose tensor is replaced between two calls starts empty, and the compiled forward writes into the new one.

    pytorch/pytorch#115774. Since 2.4; until 2.3 compiled code keeps writing into the old tensor, in silence.
    """
    _check_cleared(build, device, observe)


@catches(NeverCleared, build=CachingInPlace)
def test_cleared_cache_is_seen(build: Code, device: torch.device, observe: Observe) -> None:
    """A cache that is cleared in place between two calls starts empty.

    pytorch/pytorch#115774. 2.0 to 2.15: the way that holds where a replaced tensor is not seen.
    """
    _check_cleared(build, device, observe)
