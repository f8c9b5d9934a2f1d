"""Views and copies: which writes arrive, and which go nowhere or everywhere."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conformance.incell import catches, values
from conformance.incell.marks import Twin
from conformance.instruments.weights import uniform


def write_through_a_view(x: Tensor) -> None:
    """`view` refuses where it would have to copy, so this write arrives or raises."""
    x.transpose(0, 1).view(-1)[0] = 7.0


def writes_to_a_reshaped_copy(x: Tensor) -> None:
    """`reshape` copies in silence where it must."""
    x.reshape(-1)[0] = 7.0


def writes_to_selected_rows(x: Tensor) -> None:
    """An index by a list makes a copy, and the second index writes into that."""
    x[[0, 1]][0] = 7.0


def writes_to_flattened_copy(x: Tensor) -> None:
    """So does `flatten`."""
    x.flatten().fill_(7.0)


@values
@catches(writes_to_a_reshaped_copy, writes_to_selected_rows, writes_to_flattened_copy, write=write_through_a_view)
def test_write_through_a_view_arrives(write: Callable[[Tensor], None], device: torch.device) -> None:
    """A write into a view of a transposed tensor is seen in the tensor.

    pytorch/pytorch#185091 (a reviewer's account of `reshape`). 1.13 to 2.15.
    """
    x = torch.zeros(3, 4, device=device).transpose(0, 1)
    write(x)
    assert float(x[0, 0]) == 7.0


def flatten_by_reshape(x: Tensor) -> Tensor:
    """Copies where it must."""
    return x.transpose(1, 2).reshape(x.size(0), x.size(2), -1)


def flattens_by_view(x: Tensor) -> Tensor:
    """Cannot copy."""
    return x.transpose(1, 2).view(x.size(0), x.size(2), -1)


def flattens_without_transposing(x: Tensor) -> Tensor:
    """The right shape, and heads for positions."""
    return x.reshape(x.size(0), x.size(2), -1)


@values
@catches(Twin(flattens_by_view, "raises"), flattens_without_transposing, merge=flatten_by_reshape)
def test_heads_merge_after_transpose(merge: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """Heads `(B, H, T, D)` merge into `(B, T, H * D)`, each position with its own numbers.

    pytorch/vision#6777 (`view` on strided input). 1.13 to 2.15.
    """
    x = torch.arange(24.0, device=device).reshape(1, 2, 3, 4)
    assert merge(x)[0, 1].tolist() == [*x[0, 0, 1].tolist(), *x[0, 1, 1].tolist()]


def write_into_a_clone(x: Tensor, rows: int) -> Tensor:
    """Rows of their own."""
    y = x.expand(rows, -1).clone()
    y[0] = 1.0
    return y


def writes_into_every_row(x: Tensor, rows: int) -> Tensor:
    """All rows are one."""
    y = x.expand(rows, -1)
    y[0] = 1.0
    return y


def adds_to_expanded(x: Tensor, rows: int) -> Tensor:
    """torch refuses this one."""
    y = x.expand(rows, -1)
    y += torch.eye(rows, x.size(1), device=x.device)
    return y


@values
@catches(writes_into_every_row, Twin(adds_to_expanded, "raises"), build=write_into_a_clone)
def test_expanded_rows_are_one(build: Callable[..., Tensor], device: torch.device) -> None:
    """A write into one row of an expanded tensor leaves the others, once it is cloned.

    pytorch/pytorch#8994, pytorch/pytorch#7509. Item assignment is silent, arithmetic raises, on 1.13 to 2.15.
    """
    assert build(torch.zeros(1, 3, device=device), 2).sum(1).tolist() == [3.0, 0.0]


def write_into_strided_output(a: Tensor, b: Tensor, out: Tensor) -> None:
    """As torch has it."""
    torch.mm(a, b, out=out)
    torch.mul(out.clone(), 2.0, out=out)


def writes_into_resized_output(a: Tensor, b: Tensor, out: Tensor) -> None:
    """A slice of another size is resized, and no longer the buffer."""
    torch.mm(a, b, out=out[:0].clone())


@values
@catches(writes_into_resized_output, write=write_into_strided_output)
def test_strided_output_is_written(write: Callable[..., None], device: torch.device) -> None:
    """`out=` of a transposed tensor is written in place.

    pytorch/pytorch#91308 (`cat` on MPS), pytorch/pytorch#125696 (`mse_loss`). On the CPU right on 1.13 to 2.15.
    """
    a, b, out = uniform((2, 3)).to(device), uniform((3, 4), "b").to(device), torch.zeros(4, 2, device=device)
    write(a, b, out.t())
    torch.testing.assert_close(out.cpu().double(), 2 * (a.cpu().double() @ b.cpu().double()).t(), rtol=1e-5, atol=1e-6)


def flip_rows(x: Tensor) -> Tensor:
    """A copy in the other order."""
    return x.flip(0)


def slices_backwards(x: Tensor) -> Tensor:
    """torch knows no negative stride."""
    return x[::-1]


def rolls_rows(x: Tensor) -> Tensor:
    """Another order."""
    return x.roll(1, 0)


@values
@catches(Twin(slices_backwards, "raises"), rolls_rows, reverse=flip_rows)
def test_rows_are_reversed(reverse: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """Rows come in the other order by `flip`; a slice with a negative step raises.

    Observed on 1.13 to 2.15.
    """
    assert reverse(torch.arange(3, device=device)).tolist() == [2, 1, 0]


def window_by_unfold(x: Tensor, width: int) -> Tensor:
    """Windows, copied before they are written."""
    return x.unfold(0, width, 1).clone()


def windows_that_overlap(x: Tensor, width: int) -> Tensor:
    """A write into one window is seen in its neighbours, and in the signal."""
    return x.as_strided((x.numel() - width + 1, width), (1, 1))


@values
@catches(windows_that_overlap, window=window_by_unfold)
def test_windows_are_apart(window: Callable[..., Tensor], device: torch.device) -> None:
    """A write into one window of a signal leaves the others and the signal.

    Observed on 1.13 to 2.15: `as_strided` shares memory, and item assignment is silent about it.
    """
    x = torch.arange(5.0, device=device)
    windows = window(x, 3)
    windows[0] = -1.0
    assert windows[1].tolist() == [1.0, 2.0, 3.0]
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
