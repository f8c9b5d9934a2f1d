"""Training through compiled code: gradients, frozen weights, optimizer steps, loaded weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

BACKENDS = ("eager", "aot_eager")


class Doubled(torch.autograd.Function):
    """Forward x, backward twice the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """As it is."""
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Doubled."""
        return gradient * 2


class Two(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)
        self.form = "plain"

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 3)`."""
        result: Tensor = PATHS[self.form](self, x)
        return result


def _hooked(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    y.register_hook(lambda gradient: gradient * 3)
    return m.second(y.relu())


#: Name -> a way from input to output.
PATHS: dict[str, Code] = {
    "plain": lambda m, x: m.second(m.first(x).relu()),
    "tied": lambda m, x: functional.linear(m.first(x), m.first.weight.t()),
    "detached": lambda m, x: m.second(m.first(x).detach().relu()) + m.first(x).sum(),
    "in_place": lambda m, x: m.second(m.first(x).mul_(2).relu_()),
    "custom_function": lambda m, x: m.second(Doubled.apply(m.first(x))),
    "checkpoint": lambda m, x: checkpoint(lambda y: m.second(m.first(y).relu()), x, use_reentrant=False),
    "hook_on_tensor": _hooked,
    "mean_square": lambda m, x: (m.second(m.first(x)) - x).pow(2).mean(),
    "unused": lambda m, x: m.first(x) * 2,
    "broken": lambda m, x: (m.first(x), torch._dynamo.graph_break(), m.second(m.first(x)))[2],
    "retain": lambda m, x: m.second(m.first(x).relu() * m.first(x).sigmoid()),
}


@contextmanager
def drops_gradients(code: Code, **options: Any) -> Any:
    """Right numbers, and every second gradient lost at a detach."""
    yield lambda x: code(x) + (code(x) - code(x).detach()), Report()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", PATHS)
@catches(drops_gradients, compiled_by=compiling)
def test_gradients_are_eagers(compiled_by: Code, form: str, backend: str, device: torch.device, observe: Observe) -> None:
    """Gradients of inputs and parameters through compiled code are eager's, accumulated over two calls.

    pytorch/pytorch#91665 (hooks); own observation for the others. 2.0 to 2.15; with a checkpoint since 2.1.
    """
    module = fill(Two()).to(device)
    module.form = form
    x = uniform((2, 3)).to(device).requires_grad_()
    check_compiled(module, {"first": (x,), "second": (x,)}, observe, compiled_by=compiled_by, backend=backend, backward=True)


@pytest.mark.parametrize("backend", BACKENDS)
@catches(drops_gradients, compiled_by=compiling)
def test_requires_grad_is_seen(compiled_by: Code, backend: str, device: torch.device, observe: Observe) -> None:
    """An input that requires grad after one that did not, and a layer that is frozen later, have eager's gradients.

    pytorch/pytorch#119162; own observation. 2.0 to 2.15.
    """
    x = uniform((2, 3)).to(device)
    inputs = {
        "plain": call(x),
        "requires": call(x.clone().requires_grad_()),
        "frozen": call(x, before=lambda module: module.first.requires_grad_(False)),
    }
    check_compiled(fill(Two()).to(device), inputs, observe, compiled_by=compiled_by, backend=backend, backward=True)


def _train(step: Code, module: nn.Module, device: torch.device) -> list[float]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for index in range(3):
        optimizer.zero_grad()
        loss = step(uniform((4, 3), str(index)).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@contextmanager
def keeps_first_weights(code: Code, **options: Any) -> Any:
    """Weights folded into the program as constants: what freezing does."""
    yield copy.deepcopy(code), Report()


@pytest.mark.parametrize("backend", BACKENDS)
@catches(keeps_first_weights, compiled_by=compiling)
def test_optimizer_steps_are_seen(compiled_by: Code, backend: str, device: torch.device, observe: Observe) -> None:
    """A compiled module trained for three steps has eager's losses: each step sees the weights of the one before.

    pytorch/pytorch#104984. 2.0 to 2.15.
    """
    expected = _train(module := fill(Two()).to(device), module, device)
    module = fill(Two()).to(device)
    with compiled_by(module, backend=backend) as (compiled, report):
        got = _train(compiled, module, device)
    observe("graphs", report.graphs, better="lower")
    assert got == pytest.approx(expected, rel=1e-5)


@catches(keeps_first_weights, compiled_by=compiling)
def test_loaded_weights_are_seen(compiled_by: Code, device: torch.device) -> None:
    """Weights loaded into the module after compilation are those that the compiled module computes with, under no_grad too.

    pytorch/pytorch#104984. 2.0 to 2.15.
    """
    module, x = fill(Two()).to(device).eval(), uniform((2, 3)).to(device)
    with torch.no_grad(), compiled_by(module) as (compiled, _):
        compiled(x)
        module.load_state_dict(fill(Two(), seed=1).state_dict())
        assert torch.allclose(compiled(x), module(x))
