"""float64 where a device has none: numpy's arrays, tables, ranges, schedules and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import narrowed_dtype, range_like, steps_like, table_like, to_device
from conformance.incell import catches, values
from conformance.incell.marks import Twin
from conformance.instruments.dispatching import elsewhere, recorded, refusing


def moves_then_casts(source: Any, device: torch.device) -> Any:
    """The float64 array is moved as it is, and cast there."""
    if isinstance(source, dict):
        return {name: moves_then_casts(part, device) for name, part in source.items()}
    return torch.as_tensor(source).to(device).float()


def _sources() -> dict[str, Any]:
    numpy = pytest.importorskip("numpy")
    return {
        "array": numpy.arange(4.0),
        "reversed": numpy.arange(4.0)[::-1],
        "tensor": torch.arange(4, dtype=torch.float64),
        "complex": torch.zeros(4, dtype=torch.complex128),
        "batch": {"x": numpy.arange(4.0), "y": torch.arange(4, dtype=torch.float64)},
    }


@pytest.mark.parametrize("source", ["array", "reversed", "tensor", "complex", "batch"])
@catches(Twin(moves_then_casts, "raises"), move=to_device)
def test_float64_is_narrowed_before_it_moves(move: Callable[..., Any], source: str, device: torch.device) -> None:
    """float64 and complex128 data reach a device that holds neither, cast on the host and then moved.

    thu-ml/tianshou#1237, unit8co/darts#2326, NKI-AI/direct#308. Guard `to_device`, 1.13 to 2.15; it keeps float64 where it can.
    """
    target = elsewhere(device)
    data = _sources()[source]
    with refusing(target):
        moved = move(data, target)
        for tensor in moved.values() if isinstance(moved, dict) else [moved]:
            assert tensor.device.type == target.type
            assert tensor.dtype in (torch.float32, torch.complex64)
    assert narrowed_dtype(torch.float64, "cpu") == torch.float64


class NarrowTable(nn.Module):
    """The table is cast when it is made."""

    def __init__(self, numbers: Any) -> None:
        super().__init__()
        self.register_buffer("table", table_like(torch.empty(0), numbers))


class Float64Table(nn.Module):
    """The table is what numpy made."""

    def __init__(self, numbers: Any) -> None:
        super().__init__()
        self.register_buffer("table", torch.from_numpy(numbers))


@catches(Twin(Float64Table, "raises"), module=NarrowTable)
def test_module_of_numpy_table_moves(module: type[nn.Module], device: torch.device) -> None:
    """A module with a table that numpy computed moves to a device without float64.

    unit8co/darts#2326. Guard `table_like`, 1.13 to 2.15.
    """
    numpy = pytest.importorskip("numpy")
    target = elsewhere(device)
    with refusing(target):
        (table,) = module(numpy.linspace(0.0, 1.0, 4)).to(target).buffers()
    assert (table.dtype, table.device.type) == (torch.float32, target.type)


def ranges_by_float_step(x: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The step is a float, the count what rounding makes of it."""
    return torch.arange(0.0, length * 0.1, 0.1, dtype=dtype, device=x.device)


def ranges_in_float64(x: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Computed wide, cast at the end."""
    return torch.arange(length, dtype=torch.float64, device=x.device).to(dtype)


@catches(ranges_by_float_step, ranges_in_float64, positions=range_like)
def test_range_has_as_many_as_asked(positions: Callable[..., Tensor], device: torch.device) -> None:
    """A range beside a tensor has the length asked for, and no float64 on the way.

    pytorch/pytorch#5556, pytorch/pytorch#18363 (another count on another device). Guard `range_like`, 1.13 to 2.15.
    """
    x = torch.ones(1, device=device)
    with recorded(device) as seen:
        sizes = [positions(x, length, torch.float32).numel() for length in (3, 6, 7)]
    assert (sizes, seen.of("float64")) == ([3, 6, 7], [])


def spaces_in_low_precision(x: Tensor, start: float, end: float, count: int) -> Tensor:
    """Each step is rounded on its own, and so is the step."""
    return torch.linspace(start, end, count, dtype=torch.bfloat16, device=x.device).to(x.dtype)


def accumulates_the_step(x: Tensor, start: float, end: float, count: int) -> Tensor:
    """The rounding of the step adds up."""
    step = torch.full((count - 1,), (end - start) / (count - 1), dtype=x.dtype, device=x.device)
    return torch.cat([torch.full((1,), start, dtype=x.dtype, device=x.device), start + step.cumsum(0)])


@values
@catches(spaces_in_low_precision, accumulates_the_step, space=steps_like)
def test_schedule_is_rounded_once(space: Callable[..., Tensor], device: torch.device) -> None:
    """A noise schedule in float32 is the float64 one rounded once, on each device.

    Comfy-Org/ComfyUI#16001 (sigmas rounded one by one). Guard `steps_like`, 1.13 to 2.15.
    """
    got = space(torch.empty(0, device=device), 1e-4, 2e-2, 1000)
    assert torch.equal(got.cpu(), torch.linspace(1e-4, 2e-2, 1000, dtype=torch.float64).float())


def sum_losses_in_float32(losses: list[Tensor], device: torch.device) -> Tensor:
    """A float32 sum beside the losses."""
    return torch.stack(losses).sum() + torch.zeros((), device=device)


def sums_losses_in_float64(losses: list[Tensor], device: torch.device) -> Tensor:
    """A float64 sum, for precision."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for loss in losses:
        total += loss
    return total.float()


@catches(sums_losses_in_float64, total=sum_losses_in_float32)
def test_losses_sum_without_float64(total: Callable[..., Tensor], device: torch.device) -> None:
    """The mean loss of an epoch is kept on the device without a float64 tensor.

    pytorch/pytorch#122602. 1.13 to 2.15.
    """
    losses = [torch.full((), 0.5, device=device) for _ in range(4)]
    with recorded(device) as seen:
        assert total(losses, device).dtype == torch.float32
    assert seen.of("float64", "mixed") == []


def frequencies_in_float32(dimension: int, device: torch.device) -> Tensor:
    """Inverse frequencies of a rotary embedding, float32 throughout."""
    return 10000.0 ** (torch.arange(0, dimension, 2, dtype=torch.float32, device=device) / -dimension)


def takes_frequencies_in_float64(dimension: int, device: torch.device) -> Tensor:
    """Wide, then cast: right numbers on a device that has float64."""
    return (10000.0 ** (torch.arange(0, dimension, 2, dtype=torch.float64, device=device) / -dimension)).float()


def takes_base_as_tensor(dimension: int, device: torch.device) -> Tensor:
    """A float64 base makes float64 of integer channels."""
    base = torch.tensor(10000.0, dtype=torch.float64, device=device)
    return (base ** (torch.arange(0, dimension, 2, device=device) / -dimension)).float()


@catches(takes_frequencies_in_float64, takes_base_as_tensor, frequencies=frequencies_in_float32)
def test_frequencies_hold_no_float64(frequencies: Callable[..., Tensor], device: torch.device) -> None:
    """The frequencies of a rotary embedding come to be without a float64 tensor, and are float64's to 2e-6.

    huggingface/transformers#31060. 1.13 to 2.15.
    """
    with recorded(device) as seen:
        made = frequencies(64, device)
    assert (made.dtype, seen.of("float64")) == (torch.float32, [])
    if not made.is_meta:
        expected = [10000.0 ** (-channel / 64) for channel in range(0, 64, 2)]
        torch.testing.assert_close(made.cpu(), torch.tensor(expected), rtol=2e-6, atol=0.0)


def weigh_by_float(loss: Tensor, weight: float) -> Tensor:
    """The weight is a number."""
    return loss * weight


def weighs_by_float64_tensor(loss: Tensor, weight: float) -> Tensor:
    """The weight is a 0-dim float64 tensor: the result is float32 all the same, so nobody notices."""
    return loss * torch.tensor(weight, dtype=torch.float64, device=loss.device)


@catches(weighs_by_float64_tensor, weigh=weigh_by_float)
def test_weighted_loss_trains_without_float64(weigh: Callable[..., Tensor], device: torch.device) -> None:
    """Forward, backward and step of a weighted loss make no float64 tensor and mix no dtypes.

    pytorch/pytorch#122602; a 0-dim float64 tensor leaves the result float32, and raises on MPS. 1.13 to 2.15.
    """
    model = nn.Linear(4, 2, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    with recorded(device) as seen:
        weigh(model(torch.ones(3, 4, device=device)).sum(), 0.5).backward()
        optimizer.step()
    assert seen.of("float64", "mixed") == []
