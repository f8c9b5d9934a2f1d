"""torch.fx.symbolic_trace on the same obstacles: what it refuses, follows and freezes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.incell import catches, uncounted, values
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.tracing import check_refused_or_general
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def arange_by_size(x: Tensor) -> Tensor:
    """A proxy of a size goes into the factory."""
    return x + torch.arange(x.size(1), device="cpu").to(x)


def arange_of_example(x: Tensor) -> Tensor:
    """A length that was decided before the trace."""
    return x + torch.arange(3, device="cpu").to(x)


@catches(arange_of_example, code=arange_by_size)
def test_fx_size_in_factory(code: Code, device: torch.device, observe: Observe) -> None:
    """torch.fx refuses a size in a factory or follows it; it never freezes it.

    pytorch/pytorch#51803. TypeError until 2.8, follows since 2.9.
    """
    inputs = {"length3": (uniform((1, 3)).to(device),), "length1": (uniform((1, 1)).to(device),)}
    check_refused_or_general(lambda: torch.fx.symbolic_trace(code), arange_by_size, inputs, observe)


def flatten_by_size(x: Tensor) -> Tensor:
    """The batch as fx records it."""
    return x.view(x.size(0), -1)


def flattens_to_batch_of_two(x: Tensor) -> Tensor:
    """A batch decided before the trace."""
    return x.view(2, -1)


@catches(flattens_to_batch_of_two, code=flatten_by_size)
def test_fx_view_follows(code: Code, device: torch.device, observe: Observe) -> None:
    """torch.fx records a size that goes into view.

    pytorch/pytorch#54602. 1.13 to 2.15.
    """
    inputs = {"2x3x4": (uniform((2, 3, 4)).to(device),), "4x2x2": (uniform((4, 2, 2)).to(device),)}
    check_generalizes(flatten_by_size, torch.fx.symbolic_trace(code), inputs, observe)


def branch_on_data(x: Tensor) -> Tensor:
    """A branch that fx cannot decide."""
    return x + 1 if x.sum() > 0 else x - 1


def branches_before_trace(x: Tensor) -> Tensor:
    """A branch that was decided by a default."""
    return x + 1 if x is not None else x - 1


@catches(branches_before_trace, code=branch_on_data)
def test_fx_branch_is_refused(code: Code) -> None:
    """torch.fx refuses a branch on data rather than record one side.

    pytorch/pytorch#51803. 1.13 to 2.15.
    """
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(code)


class Dropping(nn.Module):
    """Dropout by the functional form."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return functional.dropout(x, 0.5, self.training)


def symbolic_in_eval(module: nn.Module) -> Code:
    """The mode that is shipped."""
    return torch.fx.symbolic_trace(module.eval())


def symbolic_in_train(module: nn.Module) -> Code:
    """Training mode, switched afterwards."""
    return torch.fx.symbolic_trace(module.train()).eval()


@catches(symbolic_in_train, capture=symbolic_in_eval)
def test_fx_mode_is_that_of_the_trace(capture: Code, device: torch.device) -> None:
    """torch.fx makes the mode part of the program, as the tracer does.

    pytorch/pytorch#68190. 1.13 to 2.15.
    """
    assert int((capture(Dropping())(torch.ones(64, device=device)) == 0).sum()) == 0
