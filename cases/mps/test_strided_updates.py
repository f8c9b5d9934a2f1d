"""In-place updates of tensors that are not contiguous: on MPS several wrote into a copy, and parameters never moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import addcdiv_, addcmul_, lerp_
from conformance.incell import catches, values
from conformance.instruments.layouts import LAYOUTS
from conformance.instruments.weights import uniform

GUARDED: dict[str, Callable[..., Tensor]] = {"lerp": lerp_, "addcmul": addcmul_, "addcdiv": addcdiv_}


NATIVE: dict[str, Callable[..., Tensor]] = {
    "lerp": lambda x, a, value: x.lerp_(a, value),
    "addcmul": lambda x, a, b, value: x.addcmul_(a, b, value=value),
    "addcdiv": lambda x, a, b, value: x.addcdiv_(a, b, value=value),
}


EXPECTED: dict[str, Callable[..., Tensor]] = {
    "lerp": lambda x, a, value: x + value * (a - x),
    "addcmul": lambda x, a, b, value: x + value * a * b,
    "addcdiv": lambda x, a, b, value: x + value * a / b,
}


def update_by_guard(op: str, x: Tensor, *operands: Any) -> None:
    """The guard of that name."""
    GUARDED[op](x, *operands)


def update_natively(op: str, x: Tensor, *operands: Any) -> None:
    """torch's own op."""
    NATIVE[op](x, *operands)


def updates_a_copy(op: str, x: Tensor, *operands: Any) -> None:
    """What MPS did with strided tensors: the result goes into a contiguous copy."""
    NATIVE[op](x.contiguous(), *operands)


def _check_update(update: Callable[..., None], op: str, layout: str, device: torch.device) -> None:
    x, a, b = (LAYOUTS[layout](uniform((4, 6), name).to(device)) for name in ("x", "a", "b"))
    b.copy_(b.abs() + 1.0)
    operands = (a,) if op == "lerp" else (a, b)
    expected = EXPECTED[op](*(tensor.cpu().double() for tensor in (x, *operands)), 0.25)
    update(op, x, *operands, 0.25)
    torch.testing.assert_close(x.cpu().double(), expected, rtol=1e-6, atol=1e-7)


@values
@pytest.mark.parametrize("op", GUARDED)
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(updates_a_copy, update=update_by_guard)
def test_strided_update(update: Callable[..., None], op: str, layout: str, device: torch.device) -> None:
    """The guards update a tensor of any strides.

    pytorch/pytorch#118115. 1.13 to 2.15.
    """
    _check_update(update, op, layout, device)


@values
@pytest.mark.parametrize("op", NATIVE)
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(updates_a_copy, update=update_natively)
def test_strided_update_native(update: Callable[..., None], op: str, layout: str, device: torch.device) -> None:
    """torch's in-place ops update a tensor of any strides.

    pytorch/pytorch#118115 (MPS, until the fix of pytorch/pytorch#124442). On the CPU right on 1.13 to 2.15.
    """
    _check_update(update, op, layout, device)


OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def optimise_in_place(kind: Any, weight: Tensor) -> Tensor:
    """As torch has it."""
    parameter = nn.Parameter(weight)
    parameter.grad = torch.ones_like(weight)
    kind([parameter], lr=0.1).step()
    return weight


def optimises_a_copy(kind: Any, weight: Tensor) -> Tensor:
    """The parameter that is stepped is not the tensor that is used."""
    optimise_in_place(kind, weight.contiguous())
    return weight


@values
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@catches(optimises_a_copy, optimise=optimise_in_place)
def test_strided_parameter_is_stepped(optimise: Callable[..., Tensor], optimizer: str, device: torch.device) -> None:
    """An optimizer moves a transposed parameter as it moves a contiguous one.

    pytorch/pytorch#118117: on MPS Rprop never did. On the CPU right on 1.13 to 2.15.
    """
    kind, start = getattr(torch.optim, optimizer), uniform((4, 6)).to(device)
    stepped = optimise(kind, LAYOUTS["transposed"](start.clone()))
    straight = optimise_in_place(kind, start.clone())
    assert not torch.equal(straight.cpu(), start.cpu())
    torch.testing.assert_close(stepped.cpu(), straight.cpu())


ELEMENTWISE: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda x, y: x.add_(y, alpha=2),
    "mul": lambda x, y: x.mul_(y),
    "masked_fill": lambda x, y: x.masked_fill_(y > 0, 3.0),
    "clamp": lambda x, y: x.clamp_(min=0.25),
    "copy": lambda x, y: x.copy_(y),
    "index_add": lambda x, y: x.index_add_(0, torch.tensor([1, 1], device=x.device), y[:2]),
    "scatter_add": lambda x, y: x.scatter_add_(1, torch.zeros(4, 6, dtype=torch.int64, device=x.device), y),
    "tril": lambda x, y: x.tril_(),
    "sigmoid": lambda x, y: x.sigmoid_(),
    "fill_row": lambda x, y: x[1].fill_(7.0),
    "set_column": lambda x, y: x.__setitem__((slice(None), 2), y[:, 0]),
}


def write_natively(op: str, x: Tensor, y: Tensor) -> None:
    """As torch has it."""
    ELEMENTWISE[op](x, y)


def writes_into_a_copy(op: str, x: Tensor, y: Tensor) -> None:
    """Nobody keeps the copy."""
    ELEMENTWISE[op](x.contiguous(), y)


@values
@pytest.mark.parametrize("op", ELEMENTWISE)
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(writes_into_a_copy, write=write_natively)
def test_write_reaches_strided_tensors(write: Callable[..., None], op: str, layout: str, device: torch.device) -> None:
    """An in-place op writes into a strided tensor what it writes into a contiguous one.

    pytorch/pytorch#118115 and its kind on MPS. On the CPU right on 1.13 to 2.15.
    """
    x, y = uniform((4, 6)), uniform((4, 6), "y")
    expected = x.clone().double()
    ELEMENTWISE[op](expected, y.double())
    strided = LAYOUTS[layout](x.to(device))
    write(op, strided, LAYOUTS[layout](y.to(device)))
    torch.testing.assert_close(strided.cpu().double(), expected, rtol=1e-5, atol=1e-6)
