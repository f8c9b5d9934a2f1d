"""Tensors made in a way that every backend takes: on the right device, in a dtype that it holds, without waiting for it.

MPS has no float64 and no complex128, and moving such a tensor there raises (pytorch/pytorch#77781); numpy makes float64 by
default. So numbers are narrowed on the host and then moved. All of this holds on 1.13 and later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64, torch.int64: torch.int32}
#: Where page-locked host memory makes a copy asynchronous.
_PINNING = ("cuda", "xpu")


def holds_dtype(dtype: torch.dtype, device: torch.device | str) -> bool:
    """Whether `device` can hold a tensor of `dtype`, asked of the device itself: no list of backends stays right."""
    try:
        torch.empty(0, dtype=dtype, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def narrowed_dtype(dtype: torch.dtype, device: torch.device | str) -> torch.dtype:
    """`dtype`, or where `device` does not hold it the next narrower one: float32, complex64, int32."""
    return _NARROWER[dtype] if dtype in _NARROWER and not holds_dtype(dtype, device) else dtype


def fill_value(value: float, dtype: torch.dtype) -> float | int:
    """`value` brought into the finite range of a floating `dtype`, infinities and NaN left alone.

    In an integer dtype a fraction or an overflow raises ValueError, where torch truncates or wraps in silence.
    """
    if dtype.is_floating_point:
        limit = torch.finfo(dtype).max
        return value if not math.isfinite(value) else min(max(value, -limit), limit)
    if dtype.is_complex or dtype == torch.bool:
        return value
    bounds = torch.iinfo(dtype)
    if value != value or math.isinf(value) or value != int(value) or not bounds.min <= value <= bounds.max:
        raise ValueError(f"{value} is not a value of {dtype}")
    return int(value)


def constant_like(x: Tensor, value: float, dtype: torch.dtype | None = None) -> Tensor:
    """0-dim tensor of `value` on x's device, in x's dtype unless `dtype` is given. A fill on the device: no copy to wait for.

    `torch.tensor(value)` is on the CPU and in the default dtype, and float64 for a numpy scalar.
    """
    return filled_like(x, value, (), dtype)


def filled_like(x: Tensor, value: float, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Tensor of `value` with x's device, and x's shape and dtype unless given, the value taken as by `fill_value`."""
    wanted = narrowed_dtype(dtype or x.dtype, x.device)
    return torch.full(x.shape if shape is None else shape, fill_value(value, wanted), dtype=wanted, device=x.device)


def range_like(x: Tensor, length: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """0 .. length - 1 on x's device. Integers first, then cast, so that no floating step decides how many there are."""
    whole = torch.arange(length, dtype=narrowed_dtype(torch.int64, x.device), device=x.device)
    return whole.to(narrowed_dtype(dtype, x.device))


def steps_like(x: Tensor, start: float, end: float, count: int) -> Tensor:
    """`count` evenly spaced numbers from start to end in x's dtype on x's device.

    Computed in float64 on the host and rounded once, so that each device has the same numbers.
    """
    return table_like(x, torch.linspace(start, end, count, dtype=torch.float64, device="cpu"), dtype=x.dtype)


def table_like(x: Tensor, data: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers from a list, a numpy array or a tensor, on x's device.

    Floating point data take x's dtype (the default dtype beside an integer `x`), other data keep theirs; both are cast before
    they are moved. Reversed numpy arrays, whose negative strides torch refuses, are copied.
    """
    if any(stride < 0 for stride in getattr(data, "strides", ()) or ()):
        data = data.copy()
    table = data if isinstance(data, Tensor) else torch.as_tensor(data)
    if dtype is None and table.is_floating_point():
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return _moved(table, x.device, dtype, non_blocking=False)


def to_device(source: Any, device: torch.device | str, *, non_blocking: bool = False) -> Any:
    """`source` with every tensor and numpy array in it (dicts, lists, tuples) on `device`, cast first to a dtype that it holds.

    `non_blocking` is for the way to a device that copies from pinned memory, and pins it. It is ignored to MPS, which may read
    the source after it was freed (pytorch/pytorch#139550, pytorch/pytorch#189690), and on the way back, where the host may read
    before the copy has ended (pytorch/pytorch#86264).
    """
    target = torch.device(device)
    if isinstance(source, Tensor):
        return _moved(source, target, None, non_blocking=non_blocking)
    if isinstance(source, Mapping):
        return type(source)({key: to_device(value, target, non_blocking=non_blocking) for key, value in source.items()})  # type: ignore[call-arg]
    if isinstance(source, (list, tuple)):
        parts = [to_device(value, target, non_blocking=non_blocking) for value in source]
        return type(source)(*parts) if hasattr(source, "_fields") else type(source)(parts)
    if hasattr(source, "__array_interface__"):
        return to_device(torch.as_tensor(source.copy()), target, non_blocking=non_blocking)
    return source


def _moved(tensor: Tensor, device: torch.device, dtype: torch.dtype | None, *, non_blocking: bool) -> Tensor:
    cast = tensor.to(narrowed_dtype(dtype or tensor.dtype, device))
    if not non_blocking or cast.device.type != "cpu" or device.type not in _PINNING:
        return cast.to(device)
    return (cast if cast.is_pinned() else cast.pin_memory()).to(device, non_blocking=True)


def generator_for(device: torch.device | str, seed: int) -> torch.Generator:
    """A seeded generator of `device`, or of the CPU where the device has none of its own (meta, xla)."""
    try:
        return torch.Generator(device).manual_seed(seed)
    except RuntimeError:
        return torch.Generator().manual_seed(seed)


def drawn_like(x: Tensor, seed: int, draw: Callable[..., Tensor] = torch.randn) -> Tensor:
    """`draw(shape)` for x's shape, dtype and device: the same numbers on every device, since they are drawn on the CPU in float32.

    Each kind of device has a stream of its own, and one seed gives others on each.
    """
    drawn = draw(tuple(x.shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float32, device="cpu")
    return drawn.to(x.dtype).to(x.device)
