"""Single kernels that went wrong in silence on MPS, each asked what it must do, on any device."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.incell import catches, dtypes, values
from conformance.instruments.bits import same_bits
from conformance.instruments.dispatching import recorded
from conformance.instruments.weights import uniform


def map_afresh(x: Tensor, w: Tensor, kept: Tensor) -> Tensor:
    """As torch has it."""
    del kept
    return functional.linear(x, w)


def maps_into_a_kept_buffer(x: Tensor, w: Tensor, kept: Tensor) -> Tensor:
    """The output is never cleared, and the product is added."""
    return kept.add_(functional.linear(x, w)).clone()


@values
@dtypes("float32", "bfloat16")
@pytest.mark.parametrize("shape", [(2, 13, 1024), (1, 3, 28, 315), (5, 64)], ids=["3d", "4d", "2d"])
@catches(maps_into_a_kept_buffer, run=map_afresh)
def test_linear_repeats(run: Callable[..., Tensor], shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> None:
    """A linear layer without a bias gives the same bits again for the same input.

    pytorch/pytorch#180776: in low precision on MPS the second call gave others. On the CPU right on 1.13 to 2.15.
    """
    x, w = uniform(shape).to(device, dtype), uniform((16, shape[-1]), "w").to(device, dtype)
    kept = torch.zeros(*shape[:-1], 16, dtype=dtype, device=device)
    assert same_bits(run(x, w, kept), run(x, w, kept))


def scatter_natively(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """As torch has it."""
    return x.masked_scatter(mask, source)


def scatters_and_shrinks(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The source is resized on the way."""
    y = x.masked_scatter(mask, source)
    source.resize_(2)
    return y


def scatters_by_position(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Element i of the source goes to element i, not to the i-th that is masked."""
    return torch.where(mask, source, x)


@values
@catches(scatters_and_shrinks, scatters_by_position, scatter=scatter_natively)
def test_masked_scatter_leaves_its_source(scatter: Callable[..., Tensor], device: torch.device) -> None:
    """`masked_scatter` puts the source's elements in order, and leaves the source as it was.

    pytorch/pytorch#175622: on MPS the source was resized. On the CPU right on 1.13 to 2.15.
    """
    source = torch.arange(4.0, device=device) + 1
    scattered = scatter(torch.zeros(4, device=device), torch.tensor([False, True, False, True], device=device), source)
    assert scattered.tolist() == [0.0, 1.0, 0.0, 2.0]
    assert source.tolist() == [1.0, 2.0, 3.0, 4.0]


def step_by_bits(x: Tensor, up: Tensor) -> Tensor:
    """The next number is the next integer, for positive ones."""
    del up
    return (x.view(torch.int16) + 1).view(x.dtype)


def step_natively(x: Tensor, up: Tensor) -> Tensor:
    """As torch has it."""
    return torch.nextafter(x, up)


def steps_in_float32(x: Tensor, up: Tensor) -> Tensor:
    """The step is lost when it is rounded back."""
    return torch.nextafter(x.float(), up.float()).to(x.dtype)


def _check_next(step: Callable[..., Tensor], device: torch.device) -> None:
    x = torch.tensor([1.0, 2.0, 100.0], dtype=torch.bfloat16, device=device)
    assert step(x, torch.full_like(x, math.inf)).tolist() == [1.0078125, 2.015625, 100.5]


@values
@catches(steps_in_float32, step=step_by_bits)
def test_next_number_by_bits(step: Callable[..., Tensor], device: torch.device) -> None:
    """The bfloat16 number after a positive one is found by its bits.

    pytorch/pytorch#190476. 1.13 to 2.15.
    """
    _check_next(step, device)


@values
@catches(steps_in_float32, step=step_natively)
def test_next_number_native(step: Callable[..., Tensor], device: torch.device) -> None:
    """`nextafter` in bfloat16 gives the next bfloat16 number.

    pytorch/pytorch#190476: a no-op on MPS. On the CPU right on 1.13 to 2.15.
    """
    _check_next(step, device)


def subtract_natively(x: Tensor) -> Tensor:
    """As torch has it."""
    return 1.0 - x


def subtracts_in_integers(x: Tensor) -> Tensor:
    """1.0 is whole, and so is taken for an integer."""
    return (1 - x.int()).to(x.dtype)


@values
@dtypes("float32", "bfloat16", "float16")
@catches(subtracts_in_integers, complement=subtract_natively)
def test_complement_keeps_its_fraction(complement: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """`1.0 - x` keeps the fraction of x.

    pytorch/pytorch#82543: rounded on MPS. On the CPU right on 1.13 to 2.15.
    """
    x = torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=dtype, device=device)
    assert complement(x).tolist() == [1.0, 0.75, 0.5, 0.25]


def order_natively(flags: Tensor) -> Tensor:
    """As torch has it."""
    return flags.sort(stable=True).indices


def orders_beyond_the_end(flags: Tensor) -> Tensor:
    """Indices of a padded copy."""
    padded = functional.pad(flags.to(torch.uint8), (3, 0))
    return padded.sort(stable=True).indices[: flags.numel()]


@values
@catches(orders_beyond_the_end, order=order_natively)
def test_bools_sort_within_bounds(order: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """A stable sort of bools gives each index once, false before true.

    pytorch/pytorch#184780 (a comment: indices out of bounds on MPS). On the CPU right on 1.13 to 2.15.
    """
    assert order(torch.tensor([True, False, True, False], device=device)).tolist() == [1, 3, 0, 2]


def normalise_in_float32(x: Tensor, norm: nn.Module) -> Tensor:
    """Input and statistics are of one dtype."""
    out: Tensor = norm(x.float()).to(x.dtype)
    return out


def normalises_with_float32_statistics(x: Tensor, norm: nn.Module) -> Tensor:
    """A low-precision input meets float32 statistics."""
    out: Tensor = norm(x)
    return out


@values
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@catches(normalises_with_float32_statistics, normalise=normalise_in_float32)
def test_batch_norm_sees_one_dtype(normalise: Callable[..., Tensor], training: bool, device: torch.device) -> None:
    """A batch normalisation with float32 statistics sees a float32 input, and its result is in the activations' dtype.

    pytorch/pytorch#154887: mixed, it ends the process on MPS; the CPU takes the mix. 1.13 to 2.15.
    """
    norm, x = nn.BatchNorm1d(4).to(device).train(training), uniform((3, 4)).to(device, torch.bfloat16)
    with recorded(device) as seen:
        out = normalise(x, norm)
    assert (out.dtype, seen.of("mixed")) == (torch.bfloat16, [])


def scale_by_number(x: Tensor, coefficients: Tensor) -> Tensor:
    """The coefficient is read on the host."""
    return x * float(coefficients[2])


def scales_by_first(x: Tensor, coefficients: Tensor) -> Tensor:
    """A 0-dim tensor of the host, read at the start of its memory."""
    return x * coefficients[2].as_strided((), (), 0)


def scale_by_element(x: Tensor, coefficients: Tensor) -> Tensor:
    """A 0-dim tensor of the host, as torch has it."""
    return x * coefficients[2]


def _check_coefficient(scale: Callable[..., Tensor], device: torch.device) -> None:
    coefficients = torch.tensor([9.0, 2.0, 7.0])
    assert scale(torch.full((2,), 4.0, device=device), coefficients).tolist() == [28.0, 28.0]


@values
@catches(scales_by_first, scale=scale_by_number)
def test_coefficient_of_a_table(scale: Callable[..., Tensor], device: torch.device) -> None:
    """A coefficient of a table on the host, read as a number, scales by its own value.

    pytorch/pytorch#191929. 1.13 to 2.15.
    """
    _check_coefficient(scale, device)


@values
@catches(scales_by_first, scale=scale_by_element)
def test_coefficient_of_a_table_native(scale: Callable[..., Tensor], device: torch.device) -> None:
    """An element of a table on the host, as a 0-dim tensor, scales by its own value.

    pytorch/pytorch#191929: MPS took the first of the table. On the CPU right on 1.13 to 2.15.
    """
    _check_coefficient(scale, device)


def copy_by_broadcast(target: Tensor, source: Tensor) -> Tensor:
    """As torch has it."""
    return target.copy_(source)


def copies_what_fits(target: Tensor, source: Tensor) -> Tensor:
    """The source's elements one after another, and the rest left."""
    target.view(-1)[: source.numel()] = source.flatten()
    return target


@values
@catches(copies_what_fits, copy=copy_by_broadcast)
def test_copy_broadcasts_columns(copy: Callable[..., Tensor], device: torch.device) -> None:
    """`copy_` of integers in a column fills each row of a float tensor.

    pytorch/pytorch#105277 (MPS). On the CPU right on 1.13 to 2.15.
    """
    target = torch.arange(4.0, device=device).reshape(2, 2)
    assert copy(target, torch.arange(2, device=device)[:, None]).tolist() == [[0.0, 0.0], [1.0, 1.0]]
