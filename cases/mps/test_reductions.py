"""Reductions and orders: NaN, int64 beyond 2**53, five dimensions, many winners, ties, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, values
from conformance.instruments.weights import uniform

Op = Callable[..., Tensor]
NAN = math.nan


def reduce_natively(op: Op, x: Tensor) -> Tensor:
    """As torch has it."""
    return op(x)


def drops_nan(op: Op, x: Tensor) -> Tensor:
    """NaN counts as the lowest number."""
    return op(x.nan_to_num(nan=-1e30))


PROPAGATING: dict[str, Op] = {
    "max": lambda x: x.max(),
    "max_dim": lambda x: x.max(0).values,
    "amax": lambda x: x.amax(0),
    "min": lambda x: x.min(),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x))[1],
    "clamp": lambda x: x.clamp(-1.0, 1.0)[1],
    "relu": lambda x: functional.relu(x)[1],
    "sum": lambda x: x.sum(),
    "cummax": lambda x: x.cummax(0).values[-1],
    "median": lambda x: x.median(),
    "leaky_relu": lambda x: functional.leaky_relu(x)[1],
    "max_pool": lambda x: functional.max_pool1d(x[None, None], 3).flatten(),
    "sort": lambda x: x.sort().values[-1],
    "logsumexp": lambda x: x.logsumexp(0),
}


@values
@pytest.mark.parametrize("op", PROPAGATING)
@catches(drops_nan, reduce=reduce_natively)
def test_nan_propagates(reduce: Op, op: str, device: torch.device) -> None:
    """NaN in, NaN out: extremes, clamps and pools do not drop it.

    pytorch/pytorch#130295, pytorch/pytorch#143976: on MPS max, argmax and maximum did. On the CPU right on 1.13 to 2.15.
    """
    assert bool(reduce(PROPAGATING[op], torch.tensor([1.0, NAN, 3.0], device=device)).isnan().all())


INTEGERS: dict[str, Op] = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "amax": lambda x: x.amax(),
    "sum": lambda x: x.sum(),
    "sort_last": lambda x: x.sort().values[-1],
    "topk": lambda x: x.topk(1).values[0],
    "cumsum_last": lambda x: x.cumsum(0)[-1],
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(),
}
LARGE = (2**53, 2**53 + 1, -(2**53) - 1, 5)
REDUCED: dict[str, int] = {
    **dict.fromkeys(("max", "amax", "sort_last", "topk"), 2**53 + 1),
    "min": -(2**53) - 1,
    **dict.fromkeys(("sum", "cumsum_last"), sum(LARGE)),
    "argmax": 1,
    "argmin": 2,
}


def goes_through_float(op: Op, x: Tensor) -> Tensor:
    """int64 as float32, which MPS did before macOS 13.3."""
    return op(x.float()).long()


@values
@pytest.mark.parametrize("op", [op for op in INTEGERS if op != "argmin"])
@catches(goes_through_float, reduce=reduce_natively)
def test_large_integers_reduce_exactly(reduce: Op, op: str, device: torch.device) -> None:
    """int64 numbers beyond 2**53 reduce exactly.

    pytorch/pytorch#90273, pytorch/pytorch#87753, pytorch/pytorch#92311 (MPS). On the CPU right on 1.13 to 2.15.
    """
    assert int(reduce(INTEGERS[op], torch.tensor(LARGE, device=device))) == REDUCED[op]


def reduce_dimension(op: Callable[[Tensor, int], Tensor], x: Tensor, dim: int) -> Tensor:
    """As torch has it."""
    return op(x, dim)


def reduces_flattened_dimension(op: Callable[[Tensor, int], Tensor], x: Tensor, dim: int) -> Tensor:
    """Four dimensions are the most that this kernel knows: the first two are merged, and all others move."""
    return op(x.flatten(0, 1), dim % 4)


ALONG: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, dim: x.sum(dim),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "amax": lambda x, dim: x.amax(dim),
    "softmax": lambda x, dim: x.softmax(dim),
    "argmax": lambda x, dim: x.argmax(dim),
}


@values
@pytest.mark.parametrize("op", ALONG)
@catches(reduces_flattened_dimension, reduce=reduce_dimension)
def test_five_dimensions_reduce(reduce: Callable[..., Tensor], op: str, device: torch.device) -> None:
    """A tensor of five dimensions is reduced along each of them as in float64.

    pytorch/pytorch#132732, pytorch/pytorch#136132, pytorch/pytorch#154881 (wrong or aborting on MPS). 1.13 to 2.15.
    """
    x = uniform((2, 3, 2, 3, 4)).to(device)
    for dim in range(5):
        expected = ALONG[op](x.cpu().double(), dim)
        torch.testing.assert_close(reduce(ALONG[op], x, dim).cpu().double(), expected.double(), rtol=1e-5, atol=1e-6)


def take_natively(x: Tensor, k: int) -> Tensor:
    """As torch has it."""
    return x.topk(k).values


def takes_sixteen(x: Tensor, k: int) -> Tensor:
    """Zeros after the sixteenth."""
    return functional.pad(x.topk(min(k, 16)).values, (0, max(0, k - 16)))


@values
@catches(takes_sixteen, take=take_natively)
def test_topk_takes_as_many_as_asked(take: Callable[..., Tensor], device: torch.device) -> None:
    """`topk` gives all k winners, for k beyond 16 too.

    pytorch/pytorch#78915, fixed by pytorch/pytorch#94639: on MPS zeros came after the sixteenth. 1.13 to 2.15.
    """
    x = uniform((3, 100)).to(device)
    for k in (1, 16, 17, 30, 100):
        assert torch.equal(take(x, k).cpu(), x.cpu().sort(descending=True).values[:, :k])


def order_stably(x: Tensor) -> Tensor:
    """Equal elements keep their order."""
    return x.sort(descending=True, stable=True).indices


def flips_ascending_order(x: Tensor) -> Tensor:
    """And equal elements with it."""
    return x.sort(stable=True).indices.flip(0)


@values
@catches(flips_ascending_order, order=order_stably)
def test_ties_keep_their_order(order: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """A stable descending sort keeps equal elements in order.

    pytorch/pytorch#28871, pytorch/pytorch#22393. 1.13 to 2.15.
    """
    x = torch.tensor([1, 3, 1, 3, 2] * 20, device=device)
    expected = sorted(range(100), key=lambda index: -[1, 3, 1, 3, 2][index % 5])
    assert order(x).tolist() == expected


def count_in_int64(mask: Tensor) -> Tensor:
    """torch widens integers and bools by itself."""
    return mask.cumsum(-1) - 1


def counts_in_int8(mask: Tensor) -> Tensor:
    """A mask of int8 counts to 127."""
    return mask.to(torch.int8).cumsum(-1, dtype=torch.int8) - 1


def counts_in_bfloat16(mask: Tensor) -> Tensor:
    """bfloat16 counts to 256."""
    return mask.to(torch.float32).cumsum(-1).to(torch.bfloat16) - 1


@values
@catches(counts_in_int8, counts_in_bfloat16, count=count_in_int64)
def test_positions_count_beyond_a_byte(count: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """Positions counted from a mask are right beyond 127 and beyond 256.

    huggingface/transformers#31060 is where such masks live; observed on 1.13 to 2.15. MPS cumulates int64 since macOS 13.3.
    """
    mask = torch.ones(1, 600, dtype=torch.bool, device=device)
    assert count(mask)[0].tolist() == list(range(600))


def flatten_index_in_int64(row: Tensor, column: Tensor, width: int) -> Tensor:
    """Widen, then multiply."""
    return row.long() * width + column.long()


def flattens_index_in_int32(row: Tensor, column: Tensor, width: int) -> Tensor:
    """The product wraps at 2**31."""
    return row * width + column


@values
@catches(flattens_index_in_int32, flatten=flatten_index_in_int64)
def test_flat_index_is_not_wrapped(flatten: Callable[..., Tensor], device: torch.device) -> None:
    """The flat index of a large table is beyond int32 and positive.

    pytorch/pytorch#197636 is the same mistake inside a kernel. 1.13 to 2.15.
    """
    row, column = (torch.tensor([value], dtype=torch.int32, device=device) for value in (70_000, 5))
    assert flatten(row, column, 50_000).tolist() == [70_000 * 50_000 + 5]
