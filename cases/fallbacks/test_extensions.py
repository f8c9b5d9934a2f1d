"""Operators and dtypes that are newer than the code around them: custom ops, float8, unsigned integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.incell import Twin, catches, requires, values

_COUNTER = itertools.count()


def define(body: Callable[[Tensor], Tensor], mutates: tuple[str, ...] = ()) -> Any:
    """A custom operator of a name of its own: one cannot be taken back."""
    body.__annotations__ = {"x": Tensor, "return": Tensor}
    return torch.library.custom_op(f"conformance::op{next(_COUNTER)}", body, mutates_args=mutates)


def with_a_formula() -> Any:
    """The gradient is registered."""

    def doubled(x: Tensor) -> Tensor:
        return x * 2

    made = define(doubled)
    made.register_autograd(lambda ctx, gradient: gradient * 2)
    return made


def without_a_formula() -> Any:
    """The body is opaque to autograd."""

    def doubled(x: Tensor) -> Tensor:
        return x * 2

    return define(doubled)


@values
@requires("torch.library.custom_op")
@catches(Twin(without_a_formula, "raises"), make=with_a_formula)
def test_custom_op_has_a_gradient(make: Callable[[], Any], device: torch.device) -> None:
    """A custom operator with a registered formula has that gradient.

    torch documentation: since 2.4. Without a formula the backward raises.
    """
    x = torch.ones(2, device=device, requires_grad=True)
    make()(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


def _add_one(x: Tensor) -> Tensor:
    x.add_(1)
    return x.clone()


def writes_as_declared() -> Any:
    """It writes to x and says so."""
    return define(_add_one, ("x",))


def writes_without_a_word() -> Any:
    """It writes to x and says that it writes to nothing: calls work, and compiled code may reorder them."""
    return define(_add_one)


@values
@requires("torch.library.opcheck")
@catches(Twin(writes_without_a_word, "raises"), declare=writes_as_declared)
def test_custom_op_declares_what_it_writes(declare: Callable[[], Any], device: torch.device) -> None:
    """A custom operator writes into what it declares, and `torch.library.opcheck` finds one that does not.

    torch documentation of `mutates_args`. Observed here: a call alone never tells, 2.4 to 2.15.
    """
    made, x = declare(), torch.zeros(2, device=device)
    made(x)
    assert x.tolist() == [1.0, 1.0]
    torch.library.opcheck(made, (torch.zeros(2, device=device),), test_utils="test_schema")


def with_a_fake() -> Any:
    """Shapes are told apart from numbers."""
    made = without_a_formula()
    made.register_fake(lambda x: torch.empty_like(x))
    return made


@requires("torch.library.custom_op")
@catches(Twin(without_a_formula, "raises"), make=with_a_fake)
def test_custom_op_knows_shapes(make: Callable[[], Any]) -> None:
    """A custom operator with a fake body gives shapes on meta.

    torch documentation: since 2.4.
    """
    assert make()(torch.empty(2, 3, device="meta")).shape == (2, 3)


LARGEST = 448.0


def clamp_then_cast(x: Tensor) -> Tensor:
    """Into the range of the dtype on both sides."""
    return x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def clamps_to_another_dtype(x: Tensor) -> Tensor:
    """The range of integers of eight bits."""
    return x.clamp(-128, 127).to(torch.float8_e4m3fn)


def cast(x: Tensor) -> Tensor:
    """As it is."""
    return x.to(torch.float8_e4m3fn)


def _check_saturates(convert: Callable[[Tensor], Tensor], device: torch.device, observe: Callable[..., None]) -> None:
    got = convert(torch.tensor([500.0, -1000.0, 1.0, 300.0], device=device)).float().tolist()
    observe("500_-1000_1_300", got)
    assert got[:3] == [LARGEST, -LARGEST, 1.0]
    assert got[3] == pytest.approx(300.0, rel=0.07)


@values
@requires("float8_e4m3fn")
@catches(clamps_to_another_dtype, convert=clamp_then_cast)
def test_float8_clamped(convert: Callable[[Tensor], Tensor], device: torch.device, observe: Callable[..., None]) -> None:
    """Values beyond the range of float8_e4m3fn become its largest, when they are clamped before the cast.

    jax-ml/ml_dtypes#400 compares the conventions. 2.1 to 2.15.
    """
    _check_saturates(convert, device, observe)


@values
@requires("float8_e4m3fn")
@catches(clamps_to_another_dtype, convert=cast)
def test_float8_cast_native(convert: Callable[[Tensor], Tensor], device: torch.device, observe: Callable[..., None]) -> None:
    """A cast of values beyond the range of float8_e4m3fn gives its largest value.

    jax-ml/ml_dtypes#400 compares the conventions. Observed here on the CPU: NaN until 2.12, its largest since 2.13, in silence both.
    """
    _check_saturates(convert, device, observe)


@values
@requires("float8_e4m3fn")
@pytest.mark.parametrize("value", [float("inf"), float("nan")], ids=["inf", "nan"])
def test_float8_keeps_overflow_visible_native(value: float, device: torch.device) -> None:
    """An infinity or NaN cast to float8_e4m3fn, which has no infinity, is NaN: what overflowed can be seen.

    Observed here on the CPU: infinity becomes 448 since 2.13, in silence; NaN until 2.12.
    """
    assert bool(torch.isnan(cast(torch.tensor([value], device=device)).float()).all())


def widen_then_add(x: Tensor) -> Tensor:
    """Arithmetic in a dtype that has it."""
    return (x.to(torch.int64) + 1).to(x.dtype)


def adds_in_place_of_a_dtype(x: Tensor) -> Tensor:
    """The dtype exists; its addition does not."""
    return x + 1


@values
@requires("torch.uint16")
@catches(Twin(adds_in_place_of_a_dtype, "raises"), add=widen_then_add)
def test_unsigned_integers_are_widened(add: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """Adding to uint16 works in a wider dtype: that a dtype is there says nothing of its operations.

    Observed here: `torch.uint16` since 2.3, without an addition on the CPU up to 2.15.
    """
    assert add(torch.tensor([1, 65534], device=device).to(torch.uint16)).to(torch.int64).tolist() == [2, 65535]
