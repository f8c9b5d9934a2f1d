"""Optimizers by option: fused and foreach steps, and cleared gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import fused_options
from conformance.incell import catches, values
from conformance.instruments.weights import uniform

#: What each optimizer is given: everything that an option could lose.
SETTINGS: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 0.1, "weight_decay": 0.1},
    "Adam": {"lr": 0.1, "weight_decay": 0.1},
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1, "weight_decay": 0.1},
}
Make = Callable[[str, "list[nn.Parameter]"], torch.optim.Optimizer]


def after_three_steps(make: Make, kind: str, device: torch.device) -> list[Tensor]:
    """Two parameters, moved by fixed gradients."""
    parameters = [nn.Parameter(uniform(shape, "weight").to(device)) for shape in ((4, 3), (5,))]
    optimizer = make(kind, parameters)
    for step in range(3):
        for parameter in parameters:
            parameter.grad = uniform(parameter.shape, "gradient", step).to(device)
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def single(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """A loop over the parameters."""
    found: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, foreach=False, **SETTINGS[kind])
    return found


def fused_where_there_is_one(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The guard's options."""
    optimizer = getattr(torch.optim, kind)
    found: torch.optim.Optimizer = optimizer(parameters, **SETTINGS[kind], **fused_options(optimizer, parameters))
    return found


def foreach(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """All parameters at once."""
    found: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, foreach=True, **SETTINGS[kind])
    return found


def loses_weight_decay(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The fallback was written for the rate alone."""
    found: torch.optim.Optimizer = getattr(torch.optim, kind)(parameters, **{**SETTINGS[kind], "weight_decay": 0.0})
    return found


KINDS = pytest.mark.parametrize("kind", list(SETTINGS))


@KINDS
@values
@catches(loses_weight_decay, make=fused_where_there_is_one)
def test_fused_step_is_the_plain_one(make: Make, kind: str, device: torch.device, observe: Callable[..., None]) -> None:
    """An optimizer with the fused step that this release has for the device, or without, moves parameters as the plain loop does.

    Observed here on the CPU: fused AdamW, Adam, SGD and Adagrad by 2.4; until then a TypeError, or a RuntimeError of the constructor.
    """
    observe("fused", bool(fused_options(getattr(torch.optim, kind), [torch.zeros(1, device=device)])))
    for got, expected in zip(after_three_steps(make, kind, device), after_three_steps(single, kind, device)):
        torch.testing.assert_close(got, expected)


@KINDS
@values
@catches(loses_weight_decay, make=foreach)
def test_foreach_step_is_the_plain_one(make: Make, kind: str, device: torch.device) -> None:
    """`foreach=True` moves parameters as the plain loop does.

    torch documentation. 1.13 to 2.15.
    """
    for got, expected in zip(after_three_steps(make, kind, device), after_three_steps(single, kind, device)):
        torch.testing.assert_close(got, expected)


def _used(device: torch.device) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    weight = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    return weight, optimizer


def say_how(optimizer: torch.optim.Optimizer, to_none: bool) -> None:
    """The flag, always."""
    optimizer.zero_grad(set_to_none=to_none)


def takes_it_the_other_way(optimizer: torch.optim.Optimizer, to_none: bool) -> None:
    """The default of the other release."""
    optimizer.zero_grad(set_to_none=not to_none)


@pytest.mark.parametrize("to_none", [True, False], ids=["none", "zeros"])
@catches(takes_it_the_other_way, clear=say_how)
def test_cleared_gradients(clear: Callable[..., None], to_none: bool, device: torch.device) -> None:
    """Gradients are None after `zero_grad(set_to_none=True)`, and zeros after `False`.

    torch 2.0 release notes: the default changed. Passed by hand it holds from 1.13 to 2.15.
    """
    weight, optimizer = _used(device)
    clear(optimizer, to_none)
    assert (weight.grad is None) == to_none


def test_cleared_gradients_native(device: torch.device) -> None:
    """Gradients are None after `zero_grad()`.

    torch 2.0 release notes: zeros on 1.13.
    """
    weight, optimizer = _used(device)
    optimizer.zero_grad()
    assert weight.grad is None


def clear_to_none(optimizer: torch.optim.Optimizer) -> None:
    """No gradient, no step."""
    optimizer.zero_grad(set_to_none=True)


def clears_to_zeros(optimizer: torch.optim.Optimizer) -> None:
    """A gradient of zero still moves by momentum."""
    optimizer.zero_grad(set_to_none=False)


@values
@catches(clears_to_zeros, clear=clear_to_none)
def test_unused_parameter_rests(clear: Callable[..., None], device: torch.device) -> None:
    """A parameter without a gradient rests in a step, whatever momentum it has.

    torch documentation of zero_grad. 1.13 to 2.15, with the flag.
    """
    weight, optimizer = _used(device)
    before = weight.tolist()
    clear(optimizer)
    optimizer.step()
    assert weight.tolist() == before
