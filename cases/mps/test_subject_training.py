"""Checks of any model's training on any device: loss and gradients beside those of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, deep, subjects, values
from conformance.instruments.dtypes import built_in_float64, default_dtype
from conformance.instruments.training import gradients

Code = Callable[..., Any]
Observe = Callable[..., None]

#: Beyond this, relative to their norm, gradients of float32 lost more than rounding.
TOLERANCE = 1e-3


def _loss_and_gradients(subject: Any, backward: Code, model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[float, Tensor]:
    """The loss, and every gradient in one flat float64 tensor on the CPU; of a parameter without one, zeros."""
    loss = backward(subject, model, inputs)
    flat = [torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()]
    return float(loss.cpu().double()), torch.cat([gradient.detach().to_dense().cpu().double().flatten() for gradient in flat])


def backward_once(subject: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """From cleared gradients."""
    return gradients(subject, model, inputs)


def backward_over_what_was_left(subject: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """The gradients of the step before were never cleared."""
    gradients(subject, model, inputs)
    return gradients(subject, model, inputs)


#: XLA compiles forward and backward as one program, which takes it minutes on a CPU.
@deep("xla")
@values
@subjects()
@catches(backward_over_what_was_left, backward=backward_once)
def test_subject_gradients_equal_float64(backward: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject's loss and gradients on the device are those of float64 on the CPU, up to the rounding of float32.

    pytorch/pytorch#96602 and its kind: backward kernels that lose in silence what forward kept. Dropout is off. 1.13 to 2.15.
    """
    wide = tuple(x.double() if x.is_floating_point() else x for x in subject.inputs())
    with default_dtype(torch.float64):
        try:
            wanted_loss, wanted = _loss_and_gradients(subject, gradients, built_in_float64(subject.build), wide)
        except Exception as error:  # what a model refuses a dtype with is its own affair
            pytest.skip(f"the model refuses float64: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
    if not bool(wanted.isfinite().all()):
        pytest.skip("the gradients in float64 are not finite, so nothing can be held against them")
    loss, got = _loss_and_gradients(subject, backward, subject.build().to(device), subject.inputs(device=device))
    error = float((got - wanted).norm() / wanted.norm().clamp_min(1e-12))
    observe("relative_error", error, better="lower")
    allowed = subject.tolerance or TOLERANCE
    assert abs(loss - wanted_loss) <= allowed * max(abs(wanted_loss), 1e-6), f"the loss is {loss:.6g}, in float64 {wanted_loss:.6g}"
    assert error < allowed, f"the gradients are off by {error:.2g} of their norm"
