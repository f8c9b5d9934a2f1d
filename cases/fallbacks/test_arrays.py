"""Tensors and numpy arrays: what the bridge refuses, what it shares, and where it is down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.guards import from_numpy, to_numpy
from conformance.incell import Twin, catches, host, requires

pytestmark = host

numpy = pytest.importorskip("numpy")

ToNumpy = Callable[[torch.Tensor], Any]
FromNumpy = Callable[[Any], torch.Tensor]
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
    "requires_grad": lambda: torch.ones(2, requires_grad=True),
    "conjugate": lambda: torch.tensor([1 + 2j, 3j]).conj(),
    "cut": lambda: torch.arange(6.0).reshape(2, 3).t()[:, 1:].requires_grad_(),
}


def converts_as_it_is(tensor: torch.Tensor) -> Any:
    """torch's own, which refuses all of these."""
    return tensor.numpy()


@pytest.mark.parametrize("kind", list(TENSORS))
@catches(Twin(converts_as_it_is, "raises"), convert=to_numpy)
def test_any_tensor_becomes_an_array(convert: ToNumpy, kind: str) -> None:
    """A tensor in bfloat16, with a graph, conjugated or cut becomes an array of its numbers.

    Observed here: `Tensor.numpy()` refuses them, 1.13 to 2.15; `force=True` (2.0) takes all but bfloat16.
    """
    tensor = TENSORS[kind]()
    assert convert(tensor).tolist() == tensor.tolist()


def shares_memory(tensor: torch.Tensor) -> Any:
    """The array is the tensor's memory."""
    return tensor.numpy()


@catches(shares_memory, convert=to_numpy)
def test_array_is_a_copy(convert: ToNumpy) -> None:
    """An array that was taken for a log does not follow the tensor.

    torch documentation: `Tensor.numpy()` shares. 1.13 to 2.15.
    """
    tensor = torch.ones(2)
    array = convert(tensor)
    tensor.add_(1)
    assert array.tolist() == [1.0, 1.0]


ARRAYS: dict[str, Callable[[], Any]] = {
    "reversed": lambda: numpy.arange(4.0)[::-1],
    "big_endian": lambda: numpy.arange(4, dtype=">i4"),
}


def takes_it_as_it_is(array: Any) -> torch.Tensor:
    """torch's own: no negative strides, no foreign byte order."""
    return torch.from_numpy(array)


@pytest.mark.parametrize("kind", list(ARRAYS))
@catches(Twin(takes_it_as_it_is, "raises"), convert=from_numpy)
def test_any_array_becomes_a_tensor(convert: FromNumpy, kind: str) -> None:
    """A reversed array, or one of another byte order, becomes a tensor of its numbers.

    Observed here: `torch.from_numpy` refuses them, 1.13 to 2.15.
    """
    assert convert(ARRAYS[kind]()).tolist() == ARRAYS[kind]().tolist()


@catches(takes_it_as_it_is, convert=from_numpy)
def test_read_only_array_stays(convert: FromNumpy) -> None:
    """A read-only array is not written to through the tensor made of it.

    Observed here: `torch.from_numpy` warns once per process, and shares, 1.13 to 2.15.
    """
    array = numpy.zeros(2)
    array.flags.writeable = False
    convert(array).add_(1)
    assert array.tolist() == [0.0, 0.0]


def flattens(array: Any) -> torch.Tensor:
    """The numbers, in one row."""
    return from_numpy(numpy.atleast_1d(array).ravel())


@catches(flattens, convert=from_numpy)
def test_shapes_survive(convert: FromNumpy) -> None:
    """Arrays of no axes, of no elements and of two axes keep their shape on the way and back.

    1.13 to 2.15.
    """
    for array in (numpy.float32(1.5) * numpy.ones(()), numpy.zeros((0, 3), "f"), numpy.arange(6).reshape(2, 3)):
        tensor = convert(array)
        assert tuple(tensor.shape) == array.shape
        assert to_numpy(tensor).shape == array.shape


def _bridges(which: str) -> list[float]:
    found: list[float] = {
        "tensor": lambda: torch.ones(2).numpy(),
        "array": lambda: torch.from_numpy(numpy.ones(2, "f")).numpy(),
        "list": lambda: numpy.array(torch.ones(2).tolist()),
    }[which]().tolist()
    return found


def test_bridge_native() -> None:
    """`Tensor.numpy()` works with the numpy that this environment was given.

    pytorch/pytorch#107302: each release beside a numpy that it was built for. 1.13 to 2.15.
    """
    assert _bridges("tensor") == [1.0, 1.0]


@requires("numpy>=2")
@pytest.mark.parametrize("which", ["tensor", "array", "list"])
def test_bridge_with_numpy2_native(which: str) -> None:
    """Tensors become arrays and arrays tensors beside numpy 2; lists go between them in any case.

    pytorch/pytorch#107302, pytorch/pytorch#132179. "Numpy is not available" until 2.2; right since 2.3.
    """
    assert _bridges(which) == [1.0, 1.0]


def crosses_as_a_list(array: Any) -> Any:
    """The way round the bridge that everybody finds: numbers survive it, dtypes do not."""
    return numpy.array(torch.tensor(array.tolist()).tolist())


def cross_by_guards(array: Any) -> Any:
    """There and back."""
    return to_numpy(from_numpy(array))


@requires("numpy>=2")
@catches(crosses_as_a_list, cross=cross_by_guards)
def test_guards_with_numpy2(cross: Callable[[Any], Any]) -> None:
    """Arrays of each dtype come back as they went, beside numpy 2, by the guards.

    pytorch/pytorch#107302. 1.13 to 2.15; needed until 2.2.
    """
    for name in ("float64", "float32", "float16", "int64", "int8", "uint8", "bool", "complex64"):
        array = numpy.arange(6).reshape(2, 3).astype(name)
        back = cross(array)
        assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())
