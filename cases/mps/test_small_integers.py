"""Integers that wrap, truncate or lose their fraction in silence, on every device alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conformance.guards import filled_like
from conformance.incell import catches, values
from conformance.incell.marks import Twin

Idiom = Callable[..., Tensor]


def fills_like_integers(x: Tensor, value: float) -> Tensor:
    """The fraction is cut off."""
    return torch.full_like(x, value)


def fills_masked_integers(x: Tensor, value: float) -> Tensor:
    """Here too."""
    return x.masked_fill(x > 1, value)


@catches(fills_like_integers, fills_masked_integers, fill=filled_like)
def test_fraction_in_integers_is_refused(fill: Idiom, device: torch.device) -> None:
    """Filling an integer tensor with .5 is an error, not a tensor of zeros.

    Observed on 1.13 to 2.15: `full_like`, `masked_fill` and item assignment cut it off in silence. Guard `filled_like`.
    """
    with pytest.raises(ValueError, match="not a value of"):
        fill(torch.arange(4, device=device), 0.5)


def compare_wide(x: Tensor, bound: int) -> Tensor:
    """Widen, then compare."""
    return x.to(torch.int32) < bound


def compares_narrow(x: Tensor, bound: int) -> Tensor:
    """The bound wraps into the tensor's dtype."""
    return x < bound


@values
@pytest.mark.parametrize(("name", "bound"), [("int8", 300), ("uint8", 256), ("int16", 40000)], ids=["int8", "uint8", "int16"])
@catches(compares_narrow, below=compare_wide)
def test_bound_beyond_dtype_holds(below: Idiom, name: str, bound: int, device: torch.device) -> None:
    """A bound that the tensor's dtype cannot hold is above every element of it, once the tensor is widened.

    pytorch/pytorch#101653, pytorch/pytorch#114679: the bound wraps in silence, and the comparison is false. 1.13 to 2.15.
    """
    x = torch.tensor([1, 100], device=device).to(getattr(torch, name))
    assert below(x, bound).tolist() == [True, True]


def average_wide(first: Tensor, second: Tensor) -> Tensor:
    """Widen, add, halve."""
    return ((first.int() + second.int()) // 2).to(first.dtype)


def averages_in_uint8(first: Tensor, second: Tensor) -> Tensor:
    """The sum wraps at 256."""
    return (first + second) // 2


@values
@catches(averages_in_uint8, average=average_wide)
def test_images_average_without_wrapping(average: Idiom, device: torch.device) -> None:
    """The mean of two uint8 images lies between them.

    Observed on 1.13 to 2.15: arithmetic of small integers wraps, whatever the values.
    """
    first, second = (torch.full((2,), value, dtype=torch.uint8, device=device) for value in (200, 100))
    assert average(first, second).tolist() == [150, 150]


def divide_to_floor(a: Tensor, b: int) -> Tensor:
    """Integer division, rounding said."""
    return torch.div(a, b, rounding_mode="floor")


def divides_and_truncates(a: Tensor, b: int) -> Tensor:
    """As C does it, and torch did before 1.13."""
    return torch.div(a, b, rounding_mode="trunc")


def divides_through_float32(a: Tensor, b: int) -> Tensor:
    """True division is float32, which holds integers up to 2**24."""
    return (a / b).floor().long()


@values
@catches(divides_and_truncates, divides_through_float32, divide=divide_to_floor)
def test_integer_division_floors(divide: Idiom, device: torch.device) -> None:
    """Integers divide as Python's do, negative and large ones too.

    Observed on 1.13 to 2.15; true division of integers is float32 and ends to be exact at 2**24.
    """
    numbers = [-7, 7, 2**24 + 1, 2**40 + 3]
    for divisor in (1, 2):
        assert divide(torch.tensor(numbers, device=device), divisor).tolist() == [number // divisor for number in numbers]


def average_as_float(counts: Tensor) -> Tensor:
    """The dtype is said."""
    return counts.mean(dtype=torch.float32)


def averages_integers(counts: Tensor) -> Tensor:
    """Integers have no mean of their own."""
    return counts.mean()


def divides_sum_by_count(counts: Tensor) -> Tensor:
    """Whole part only."""
    return counts.sum() // counts.numel()


@values
@catches(Twin(averages_integers, "raises"), divides_sum_by_count, average=average_as_float)
def test_integers_have_a_mean(average: Idiom, device: torch.device) -> None:
    """The mean of integer counts, asked for as float32, has its fraction.

    pytorch/pytorch#94909. Without a dtype: RuntimeError on 1.13 to 2.13, NotImplementedError on 2.15.
    """
    assert float(average(torch.tensor([1, 2], device=device))) == 1.5
