"""Rotary tables and autograd: a cache must hang on no graph, and a rotation has the gradient of a rotation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Build = Callable[..., Any]


class DetachesItsCache(nn.Module):
    """Frequencies in a parameter that is not trained here, and angles kept without their graph."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.freqs = nn.Parameter(10000.0 ** (torch.arange(0, 8, 2, device=device).float() / -8))
        self.cache: Any = None

    def compute(self, length: int) -> Tensor:
        """Angles `(length, 4)`."""
        return torch.arange(length, device=self.freqs.device).float()[:, None] * self.freqs

    def angles(self, length: int) -> Tensor:
        """Angles, kept."""
        if self.cache is None or self.cache.size(0) < length:
            self.cache = self.compute(length).detach()
        return self.cache[:length]  # type: ignore[no-any-return]


class KeepsTheGraph(DetachesItsCache):
    """Angles kept as they were computed."""

    def angles(self, length: int) -> Tensor:
        """Angles, kept."""
        if self.cache is None or self.cache.size(0) < length:
            self.cache = self.compute(length)
        return self.cache[:length]  # type: ignore[no-any-return]


@values
@pytest.mark.parametrize("then", ["backward", "deepcopy"])
@catches(Twin(KeepsTheGraph, "raises"), build=DetachesItsCache)
def test_cache_hangs_on_no_graph(build: Build, then: str, device: torch.device) -> None:
    """A module with cached angles goes through two backward passes, and can be copied between them, as EMA does.

    lucidrains/rotary-embedding-torch#18. Loud on 1.13 to 2.15.
    """
    module, weight = build(device), torch.ones(4, device=device, requires_grad=True)
    (module.angles(6).cos() * weight).sum().backward()
    if then == "deepcopy":
        module = copy.deepcopy(module)
    (module.angles(6).cos() * weight).sum().backward()
    assert weight.grad is not None
    assert rotation.error(weight.grad, 2 * rotation.angles(range(6), 8).cos().sum(0)) < 1e-5


class ComputesEachTime(DetachesItsCache):
    """Learned frequencies: nothing is kept."""

    def angles(self, length: int) -> Tensor:
        """Angles on the graph of this pass."""
        return self.compute(length)


@values
@catches(DetachesItsCache, build=ComputesEachTime)
def test_learned_frequencies_learn(build: Build, device: torch.device) -> None:
    """Frequencies that are learned get a gradient: a cache would cut them off, and they would stand still.

    lucidrains/rotary-embedding-torch#18 (the cure for frozen frequencies is wrong for learned ones). Holds on 1.13 to 2.15.
    """
    module = build(device)
    (module.angles(6).sin() * torch.ones(4, device=device, requires_grad=True)).sum().backward()
    gradient = module.freqs.grad
    assert gradient is not None
    steps = torch.arange(6, dtype=torch.float64)[:, None]
    assert rotation.error(gradient, (steps * rotation.angles(range(6), 8).cos()).sum(0)) < 1e-4


class TurnsBack(torch.autograd.Function):
    """A rotation whose gradient is turned the other way, as it must be."""

    direction = -1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn."""
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Turn back."""
        cos, sin = ctx.saved_tensors
        return rotate(gradients[0], cos, -sin), None, None


class TurnsOn(TurnsBack):
    """A rotation whose gradient is turned the same way again."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Turn on."""
        return rotate(gradients[0], *ctx.saved_tensors), None, None


def by_hand(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A kernel with a backward of its own."""
    return TurnsBack.apply(x, cos, sin)  # type: ignore[no-any-return, no-untyped-call]


def by_hand_without_transposing(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same, the forward called again in the backward."""
    return TurnsOn.apply(x, cos, sin)  # type: ignore[no-any-return, no-untyped-call]


@values
@catches(by_hand_without_transposing, turn=by_hand)
def test_gradient_turns_back(turn: Callable[..., Tensor], device: torch.device) -> None:
    """The gradient of a rotation is the inverse rotation, in a hand-written backward as in autograd's.

    unslothai/unsloth#5001 is the kin. Holds on 1.13 to 2.15.
    """
    tables, seed = RotaryCache(8, rows=6, device=device)(6), uniform((1, 6, 2, 8), "seed").to(device)
    grads = []
    for form in (turn, rotate):
        x = uniform((1, 6, 2, 8)).to(device).requires_grad_()
        (form(x, *tables) * seed).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-6)
