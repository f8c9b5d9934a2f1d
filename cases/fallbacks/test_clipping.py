"""Gradient clipping that does not clip, or that spreads what it should have stopped."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from conformance.incell import catches, values

Clip = Callable[[Iterator[nn.Parameter]], object]


def _parameters(device: torch.device, first: float = 3.0) -> list[nn.Parameter]:
    """Two, with gradients of norm 5."""
    made = [nn.Parameter(torch.zeros(1, device=device)) for _ in range(2)]
    for parameter, gradient in zip(made, (first, 4.0)):
        parameter.grad = torch.full_like(parameter, gradient)
    return made


def _gradients(parameters: list[nn.Parameter]) -> list[float]:
    return [parameter.grad.item() for parameter in parameters if parameter.grad is not None]


def list_then_clip(parameters: Iterator[nn.Parameter]) -> None:
    """A list can be read as often as one likes."""
    kept = list(parameters)
    torch.optim.SGD(kept, lr=0.1)
    torch.nn.utils.clip_grad_norm_(kept, 1.0)


def clips_an_exhausted_generator(parameters: Iterator[nn.Parameter]) -> None:
    """`model.parameters()` given to the optimizer first: nothing is left to clip."""
    torch.optim.SGD(parameters, lr=0.1)
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)


@values
@catches(clips_an_exhausted_generator, clip=list_then_clip)
def test_clipping_reaches_the_gradients(clip: Clip, device: torch.device) -> None:
    """Gradients of norm 5 have norm 1 after clipping to 1.

    pytorch/pytorch#148259: an exhausted generator is clipped in silence until 2.7, with a warning since. 1.13 to 2.15.
    """
    parameters = _parameters(device)
    clip(iter(parameters))
    assert _gradients(parameters) == pytest.approx([0.6, 0.8], rel=1e-4)


def clip_or_raise(parameters: Iterator[nn.Parameter]) -> None:
    """A norm that is no number stops it, before anything is written."""
    torch.nn.utils.clip_grad_norm_(list(parameters), 1.0, error_if_nonfinite=True)


def spreads_infinity(parameters: Iterator[nn.Parameter]) -> None:
    """The default: one infinite gradient makes all others 0 and itself NaN."""
    torch.nn.utils.clip_grad_norm_(list(parameters), 1.0)


@values
@catches(spreads_infinity, clip=clip_or_raise)
def test_infinite_gradient_is_not_spread(clip: Clip, device: torch.device) -> None:
    """An infinite gradient leaves the others as they were: clipping says so rather than zeroing them.

    pytorch/pytorch#46849: the default of `error_if_nonfinite` never changed. 1.13 to 2.15.
    """
    parameters = _parameters(device, math.inf)
    with contextlib.suppress(RuntimeError):
        clip(iter(parameters))
    assert _gradients(parameters) == [math.inf, 4.0]


def clip_one(parameters: Iterator[nn.Parameter]) -> None:
    """A parameter alone, as a model with one has it."""
    torch.nn.utils.clip_grad_norm_(list(parameters)[1], 1.0)


def clips_its_value(parameters: Iterator[nn.Parameter]) -> None:
    """The data clipped in place of the gradient."""
    with torch.no_grad():
        list(parameters)[1].clamp_(-1.0, 1.0)


@values
@catches(clips_its_value, clip=clip_one)
def test_a_single_tensor_is_clipped(clip: Clip, device: torch.device) -> None:
    """One tensor in place of a list is clipped by its own norm.

    torch documentation. 1.13 to 2.15.
    """
    parameters = _parameters(device)
    clip(iter(parameters))
    assert _gradients(parameters) == pytest.approx([3.0, 1.0], rel=1e-4)
