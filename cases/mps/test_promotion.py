"""Type promotion: where a dtype grows, shrinks or wraps in silence, and how to write it so that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import constant_like
from conformance.incell import catches, dtypes, values
from conformance.instruments.dispatching import recorded

Idiom = Callable[..., Tensor]


def scale_by_cast_gain(x: Tensor, gain: Tensor) -> Tensor:
    """The gain is cast to the activations' dtype."""
    return x * gain.to(x.dtype)


def scales_by_float32_gain(x: Tensor, gain: Tensor) -> Tensor:
    """The product has the wider dtype, and so has all that follows."""
    return x * gain


@dtypes("bfloat16", "float16")
@catches(scales_by_float32_gain, scale=scale_by_cast_gain)
def test_gain_keeps_activations_dtype(scale: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """Activations in low precision times a float32 gain stay in low precision, and no op sees two float dtypes.

    karpathy/nanochat#741: on MPS the mixed product aborts, elsewhere it is float32 from there on. 1.13 to 2.15.
    """
    x, gain = torch.ones(2, 4, dtype=dtype, device=device), torch.ones(4, device=device)
    with recorded(device) as seen:
        y = scale(x, gain)
    assert (y.dtype, seen.of("mixed")) == (dtype, [])


def _scalar(kind: str) -> Any:
    if kind.startswith("numpy"):
        numpy = pytest.importorskip("numpy")
        return {"numpy_float64": numpy.float64, "numpy_float32": numpy.float32}[kind](0.5)
    return {"float": 0.5, "tensor_float32": torch.tensor(0.5), "tensor_float64": torch.tensor(0.5, dtype=torch.float64)}[kind]


def multiply_by_scalar(x: Tensor, scalar: Any) -> Tensor:
    """A scalar, whatever holds it, does not take part in promotion within its category."""
    return scalar * x * scalar


def multiplies_by_one_element(x: Tensor, scalar: Any) -> Tensor:
    """A tensor of one element and one dimension does."""
    return x * torch.as_tensor([scalar], device=x.device)


@dtypes("bfloat16", "float32")
@pytest.mark.parametrize("kind", ["float", "numpy_float64", "tensor_float64"])
@catches(multiplies_by_one_element, multiply=multiply_by_scalar)
def test_scalar_keeps_dtype(multiply: Idiom, kind: str, device: torch.device, dtype: torch.dtype) -> None:
    """A Python, numpy or 0-dim scalar on either side leaves the tensor's dtype alone.

    pytorch/pytorch#9515 (promotion by category). 1.13 to 2.15, with numpy 1 and 2 alike; one dimension more, and it promotes.
    """
    scalar = _scalar(kind)
    if kind == "float" and dtype == torch.float32:
        scalar = _scalar("numpy_float64")
    assert multiply(torch.ones(3, dtype=dtype, device=device), scalar).dtype == dtype


def scale_positions_by_number(positions: Tensor, factor: float) -> Tensor:
    """A Python float makes the default dtype of integers."""
    return positions * factor


def scales_positions_by_float64_tensor(positions: Tensor, factor: float) -> Tensor:
    """A 0-dim float64 tensor, as `torch.tensor(numpy.sqrt(8))` is one, makes float64 of integers."""
    return positions * torch.tensor(factor, dtype=torch.float64)


@catches(scales_positions_by_float64_tensor, scale=scale_positions_by_number)
def test_integers_scale_to_default_dtype(scale: Idiom, device: torch.device) -> None:
    """Integer positions times a constant are float32, not float64.

    pytorch/pytorch#122602 (float64 on MPS). 1.13 to 2.15.
    """
    assert scale(torch.arange(4, device=device), 0.5).dtype == torch.float32


def wraps_constant_in_default_dtype(x: Tensor, value: float) -> Tensor:
    """`torch.tensor` asks the process for a dtype."""
    return torch.tensor(value, device=x.device)


def fills_in_default_dtype(x: Tensor, value: float) -> Tensor:
    """So does `torch.full`."""
    return torch.full((), value, device=x.device)


@dtypes("float32", "bfloat16")
@catches(wraps_constant_in_default_dtype, fills_in_default_dtype, make=constant_like)
def test_constant_is_of_its_neighbours_dtype(make: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """A constant made beside a tensor has that tensor's dtype, though somebody made float64 the default.

    huggingface/transformers#31060 (float64 on MPS). Guard `constant_like`, 1.13 to 2.15.
    """
    x = torch.ones(2, dtype=dtype, device=device)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        constant = make(x, 0.5)
    finally:
        torch.set_default_dtype(before)
    assert (constant.dtype, constant.dim(), constant.device.type) == (dtype, 0, device.type)


def choose_with_number(x: Tensor) -> Tensor:
    """The other branch is a number."""
    return torch.where(x > 0, x, 0.0)


def chooses_with_float32_zeros(x: Tensor) -> Tensor:
    """The other branch is a tensor of the default dtype."""
    return torch.where(x > 0, x, torch.zeros(x.shape, device=x.device))


@dtypes("bfloat16", "float16")
@catches(chooses_with_float32_zeros, choose=choose_with_number)
def test_where_keeps_dtype(choose: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """`where` against a number keeps the tensor's dtype.

    pytorch/pytorch#9515 (promotion). Against a float32 tensor the result is float32, in silence. 1.13 to 2.15.
    """
    assert choose(torch.ones(3, dtype=dtype, device=device)).dtype == dtype


def compare_in_stored_dtype(stored: Tensor, number: Tensor) -> Tensor:
    """Round the other side as the stored one was."""
    return stored == number.to(stored.dtype)


def compares_across_dtypes(stored: Tensor, number: Tensor) -> Tensor:
    """The stored side is widened: what it lost stays lost."""
    return stored == number


@values
@dtypes("bfloat16", "float16")
@catches(compares_across_dtypes, equal=compare_in_stored_dtype)
def test_stored_number_is_found_again(equal: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """A number stored in low precision equals the float32 that it was made of, rounded the same way.

    Observed on 1.13 to 2.15: `stored == 0.1` is true and `stored == torch.tensor([0.1])` false. A float32 tensor does not round.
    """
    number = torch.tensor([0.1], device=device)
    assert equal(number.to(dtype), number).tolist() == [True]


def scale_by_plain_float(x: Tensor, array: Any) -> Tensor:
    """The array's number, as a Python float."""
    return x * float(array)


def scales_by_shared_memory(x: Tensor, array: Any) -> Tensor:
    """A float64 tensor of one dimension."""
    return x * torch.from_numpy(array.reshape(1)).to(x.device)


@catches(scales_by_shared_memory, scale=scale_by_plain_float)
def test_numpy_number_scales_as_number(scale: Idiom, device: torch.device, observe: Callable[..., None]) -> None:
    """What `numpy.mean` or a 0-dim array gives scales a float32 tensor to float32, once it is a Python float.

    Observed: a 0-dim array by itself gives float32 with numpy 1 (torch 1.13 to 2.2 here) and float64 with numpy 2 (2.4 to 2.15).
    """
    numpy = pytest.importorskip("numpy")
    array = numpy.array(0.5)
    if device.type == "cpu":
        observe("array_by_itself", str((torch.ones(2) * array).dtype))
    assert scale(torch.ones(2, device=device), array).dtype == torch.float32
