"""Ops on inputs that are not contiguous, held against float64 on the host: the most common silent fault of MPS."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, values
from conformance.instruments.layouts import LAYOUTS, in_storage_order
from conformance.instruments.weights import uniform

Op = Callable[..., Tensor]
ROWS = [2, 0, 2, 3]


def _rows(x: Tensor) -> Tensor:
    return torch.tensor(ROWS, device=x.device)


#: Each takes x `(4, 6)`, y `(4, 6)` and w `(5, 6)`.
OPS: dict[str, Op] = {
    "linear": lambda x, y, w: functional.linear(x, w),
    "matmul": lambda x, y, w: x @ y.t(),
    "bmm": lambda x, y, w: torch.bmm(x[None], w.t()[None]),
    "where": lambda x, y, w: torch.where(x > 0, y, x),
    "cat": lambda x, y, w: torch.cat([x, y, w]),
    "stack": lambda x, y, w: torch.stack([-x[:, 1::2], y[:, ::2]], dim=-1).flatten(-2),
    "softmax": lambda x, y, w: x.softmax(-1),
    "softmax_first": lambda x, y, w: x.softmax(0),
    "layer_norm": lambda x, y, w: functional.layer_norm(x, (6,), y[0], w[0]),
    "mse_loss": lambda x, y, w: functional.mse_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y, w: functional.smooth_l1_loss(x, y, reduction="none"),
    "cross_entropy": lambda x, y, w: functional.cross_entropy(x, _rows(x)),
    "gelu": lambda x, y, w: functional.gelu(x),
    "addcmul": lambda x, y, w: torch.addcmul(x, y, x, value=0.5),
    "lerp": lambda x, y, w: torch.lerp(x, y, 0.25),
    "cumsum": lambda x, y, w: x.cumsum(0),
    "sum": lambda x, y, w: x.sum(1),
    "var": lambda x, y, w: x.var(0),
    "norm": lambda x, y, w: x.norm(dim=1),
    "max": lambda x, y, w: x.max(1).values,
    "sort": lambda x, y, w: x.sort(dim=1).values,
    "topk": lambda x, y, w: x.topk(3, dim=0).values,
    "gather": lambda x, y, w: x.gather(0, _rows(x)[:, None].expand(4, 6)),
    "index_select": lambda x, y, w: x.index_select(0, _rows(x)),
    "embedding": lambda x, y, w: functional.embedding(_rows(x), w),
    "masked_fill": lambda x, y, w: x.masked_fill(y > 0, 0.0),
    "flip": lambda x, y, w: x.flip(1),
    "roll": lambda x, y, w: x.roll(1, 0),
    "tril": lambda x, y, w: x.tril(),
    "pad": lambda x, y, w: functional.pad(x, (1, 2)),
    "interpolate": lambda x, y, w: functional.interpolate(x[None, None], scale_factor=2, mode="nearest"),
    "avg_pool": lambda x, y, w: functional.avg_pool2d(x[None, None], 2),
    "outer": lambda x, y, w: torch.einsum("ij,kj->ik", x, w),
    "cdist": lambda x, y, w: torch.cdist(x, w),
}


def run_natively(op: Op, *inputs: Tensor) -> Tensor:
    """As torch has it."""
    return op(*inputs)


def ignores_strides(op: Op, *inputs: Tensor) -> Tensor:
    """A kernel that reads memory in order, as MPS's did."""
    return op(*(in_storage_order(x) for x in inputs))


@values
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(ignores_strides, run=run_natively)
def test_op_minds_strides(run: Callable[..., Tensor], op: str, layout: str, device: torch.device) -> None:
    """An op gives the same numbers for strided inputs as float64 does for contiguous ones.

    On MPS: pytorch/pytorch#162779 (linear, 2.8), pytorch/pytorch#150967 (where), pytorch/pytorch#78043 (cat, stack),
    pytorch/pytorch#125696 (mse_loss), pytorch/pytorch#171619 (grid_sample). On the CPU right on 1.13 to 2.15.
    """
    inputs = [uniform(shape, name).to(device) for name, shape in (("x", (4, 6)), ("y", (4, 6)), ("w", (5, 6)))]
    expected = OPS[op](*(x.cpu().double() for x in inputs))
    got = run(OPS[op], *(LAYOUTS[layout](x) for x in inputs))
    torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-4, atol=1e-5)


CONVOLUTIONS: dict[str, Callable[..., Tensor]] = {
    "plain": functional.conv2d,
    "padded": lambda x, w: functional.conv2d(x, w, padding=1, stride=2),
    "grouped": lambda x, w: functional.conv2d(x, w[:, :2], groups=2),
    "transposed": lambda x, w: functional.conv_transpose2d(x, w.transpose(0, 1)),
}


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@values
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("strided", ["input", "weight", "both"])
@catches(ignores_strides, run=run_natively)
def test_convolution_minds_channels_last(run: Callable[..., Tensor], strided: str, convolution: str, device: torch.device) -> None:
    """A convolution gives float64's numbers where input or weight lie channels-last.

    pytorch/pytorch#192212: on MPS a weight that is not contiguous gave others. On the CPU right on 1.13 to 2.15.
    """
    x, w = uniform((2, 4, 6, 5), "x").to(device), uniform((4, 4, 3, 3), "w").to(device)
    expected = CONVOLUTIONS[convolution](x.cpu().double(), w.cpu().double())
    x, w = _channels_last(x) if strided != "weight" else x, _channels_last(w) if strided != "input" else w
    got = run(CONVOLUTIONS[convolution], x, w)
    torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-4, atol=1e-5)


def broadcast_natively(x: Tensor, w: Tensor) -> Tensor:
    """As torch has it."""
    return functional.linear(x, w)


def reads_past_the_row(x: Tensor, w: Tensor) -> Tensor:
    """Takes the rows for memory of their own: what lies behind the first is zero."""
    first = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    first[0] = x[0]
    return functional.linear(first, w)


@values
@catches(reads_past_the_row, run=broadcast_natively)
def test_linear_of_expanded_input(run: Callable[..., Tensor], device: torch.device) -> None:
    """A linear layer takes a row that was expanded, whose stride is zero.

    pytorch/pytorch#162730, pytorch/pytorch#167154 (an abort on MPS). On the CPU right on 1.13 to 2.15.
    """
    x, w = uniform((1, 6)).to(device).expand(4, 6), uniform((5, 6), "w").to(device)
    torch.testing.assert_close(run(x, w).cpu().double(), x.cpu().double() @ w.cpu().double().t(), rtol=1e-5, atol=1e-6)


def differentiate_natively(op: Op, x: Tensor, seed: Tensor) -> Tensor:
    """As torch has it."""
    (slope,) = torch.autograd.grad(op(x), x, seed)
    return slope


def ignores_strides_of_the_seed(op: Op, x: Tensor, seed: Tensor) -> Tensor:
    """The gradient that comes in is read in order of memory."""
    return differentiate_natively(op, x, in_storage_order(seed))


BACKWARD: dict[str, Op] = {
    "exp": lambda x: x.exp(),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: functional.layer_norm(x, (6,)),
    "cumsum": lambda x: x.cumsum(1),
    "matmul": lambda x: x @ torch.full((6, 6), 0.5, dtype=x.dtype, device=x.device).tril(),
    "pad": lambda x: functional.pad(x, (0, 0, 1, 0))[1:],
}


@values
@pytest.mark.parametrize("op", BACKWARD)
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(ignores_strides_of_the_seed, differentiate=differentiate_natively)
def test_backward_minds_strides(differentiate: Callable[..., Tensor], op: str, layout: str, device: torch.device) -> None:
    """The backward of an op gives float64's gradient for a strided gradient from above.

    pytorch/pytorch#197636 (the backward of bmm on MPS), pytorch/pytorch#182714. On the CPU right on 1.13 to 2.15.
    """
    x, seed = uniform((4, 6)).to(device).requires_grad_(), uniform((4, 6), "seed").to(device)
    wide = x.detach().cpu().double().requires_grad_()
    expected = differentiate_natively(BACKWARD[op], wide, seed.cpu().double())
    got = differentiate(BACKWARD[op], x, LAYOUTS[layout](seed))
    torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-4, atol=1e-5)


def gelu_by_its_formula(op: Op, x: Tensor, seed: Tensor) -> Tensor:
    """Elementary ops, each of which minds strides."""
    del op
    return differentiate_natively(lambda x: x * 0.5 * (1.0 + torch.erf(x * 0.5**0.5)), x, seed)


def _check_gelu(differentiate: Callable[..., Tensor], layout: str, device: torch.device) -> None:
    x, seed = uniform((4, 6)).to(device).requires_grad_(), uniform((4, 6), "seed").to(device)
    wide = x.detach().cpu().double().requires_grad_()
    expected = differentiate_natively(functional.gelu, wide, seed.cpu().double())
    got = differentiate(functional.gelu, x, LAYOUTS[layout](seed))
    torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-4, atol=1e-5)


@values
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(ignores_strides_of_the_seed, differentiate=gelu_by_its_formula)
def test_gelu_by_formula_minds_strides(differentiate: Callable[..., Tensor], layout: str, device: torch.device) -> None:
    """GELU written as its formula has float64's gradient for a strided gradient from above.

    Observed on 1.13 to 2.15; needed on the CPU until 2.1.
    """
    _check_gelu(differentiate, layout, device)


@values
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(ignores_strides_of_the_seed, differentiate=differentiate_natively)
def test_gelu_backward_minds_strides_native(differentiate: Callable[..., Tensor], layout: str, device: torch.device) -> None:
    """The backward of `gelu` gives float64's gradient for a strided gradient from above.

    Observed on the CPU, float32: wrong in silence for transposed gradients on 1.13, 2.0 and 2.1, right since 2.2. The path
    is oneDNN's, of pytorch/pytorch#58525.
    """
    _check_gelu(differentiate, layout, device)


def copies_first(x: Tensor, name: str) -> Tensor:
    """The rows side by side in memory, then the median along them."""
    return getattr(x.contiguous(), name)(0).values


def is_a_column_late(x: Tensor, name: str) -> Tensor:
    """The median of the column before."""
    return getattr(x.contiguous().roll(1, 1), name)(0).values


def _check_median(values: Tensor, row: Tensor) -> None:
    assert torch.equal(values.cpu(), row.cpu()), f"the median of equal rows {row.tolist()} is {values.tolist()}"


@values
@pytest.mark.parametrize("name", ["median", "nanmedian"])
@catches(is_a_column_late, median=copies_first)
def test_median_of_a_repeated_row(median: Callable[[Tensor, str], Tensor], name: str, device: torch.device) -> None:
    """The median along an axis that is one row again and again is that row, where the row is copied out first.

    Own observation, by the sweep of operators: without the copy the kernel of the CPU reads beyond the row. 1.13 to 2.15.
    """
    row = torch.tensor([1.0, 2.0, 30.0, 40.0]).to(device)
    _check_median(median(row.expand(3, 4), name), row)


@values
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_median_of_a_repeated_row_native(name: str, device: torch.device) -> None:
    """`torch.median` along an axis that was expanded (stride 0) is the row that is repeated there.

    Own observation, by the sweep of operators: on the CPU it reads memory beyond the row, in silence, on 1.13 to 2.15.
    """
    row = torch.tensor([1.0, 2.0, 30.0, 40.0]).to(device)
    _check_median(getattr(row.expand(3, 4), name)(0).values, row)
