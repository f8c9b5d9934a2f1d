"""Autograd functions under autocast: what their forward gets, and what their backward runs under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.guards import autocast, custom_bwd, custom_fwd
from conformance.incell import Twin, catches, values


def decorate_both(device: torch.device) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and backward run under the same autocast."""
    return custom_fwd(device), custom_bwd(device)


def decorates_nothing(device: torch.device) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The backward runs outside of the block, where nothing is cast."""
    return (lambda forward: forward), (lambda backward: backward)


@values
@catches(Twin(decorates_nothing, "raises"), decorate=decorate_both)
def test_backward_under_the_same_autocast(decorate: Callable[..., Any], device: torch.device) -> None:
    """A decorated backward multiplies bfloat16 gradients with float32 weights, as autocast let its forward do.

    torch documentation of custom_bwd. `torch.cuda.amp.custom_bwd` minds CUDA alone; for the CPU by name since 2.4. 1.13 to 2.15.
    """
    of_forward, of_backward = decorate(device)

    class Product(torch.autograd.Function):
        @staticmethod
        @of_forward
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(weight)
            return x @ weight

        @staticmethod
        @of_backward
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
            return gradient @ ctx.saved_tensors[0].t(), None

    x = torch.ones(2, 3, device=device, requires_grad=True)
    with autocast(device, torch.bfloat16):
        out = Product.apply(x, torch.ones(3, 4, device=device))
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[4.0] * 3] * 2


def cast_inputs(device: torch.device) -> Callable[..., Any]:
    """The guard's decorator."""
    return custom_fwd(device, cast_inputs=torch.float32)


def undecorated(device: torch.device) -> Callable[..., Any]:
    """The forward as it is: it gets what autocast made."""
    return lambda forward: forward


@values
@catches(undecorated, decorate=cast_inputs)
def test_inputs_cast_for_a_fragile_forward(decorate: Callable[..., Any], device: torch.device) -> None:
    """A forward decorated with `cast_inputs=float32` gets float32 under autocast to bfloat16, on the CPU too.

    Observed here: `torch.cuda.amp.custom_fwd`, all that there is until 2.3, ignores the CPU's autocast. 1.13 to 2.15.
    """

    class Square(torch.autograd.Function):
        @staticmethod
        @decorate(device)
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * x

    with autocast(device, torch.bfloat16):
        assert Square.apply(torch.ones(2, device=device, dtype=torch.bfloat16)).dtype == torch.float32
