"""Shapes beyond what a Mac takes: more than 16 dimensions, uneven pools, 2**16 rows or channels, sorts of millions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, deep, values
from conformance.instruments.dispatching import recorded
from conformance.instruments.weights import uniform

BITS = 17


def transform_in_three_dimensions(x: Tensor) -> Tensor:
    """A Walsh-Hadamard transform, one bit a step, never more than three dimensions."""
    for bit in range(BITS):
        y = x.reshape(-1, 2, 2**bit)
        x = torch.stack([y[:, 0] + y[:, 1], y[:, 0] - y[:, 1]], dim=1)
    return x.flatten()


def transforms_bit_by_dimension(x: Tensor) -> Tensor:
    """A dimension a bit: elegant, and too many."""
    x = x.reshape((2,) * BITS)
    for bit in range(BITS):
        low, high = x.unbind(bit)
        x = torch.stack([low + high, low - high], dim=bit)
    return x.flatten()


@catches(transforms_bit_by_dimension, transform=transform_in_three_dimensions)
def test_transform_stays_below_seventeen_dimensions(transform: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """A transform over 2**17 elements has no tensor of more than 16 dimensions, and is its own inverse.

    MPS refuses more since 2.1. 1.13 to 2.15.
    """
    x = torch.arange(2.0**BITS, device=device)
    with recorded(device) as seen:
        y = transform(x)
    assert seen.of("rank") == []
    if not y.is_meta:
        torch.testing.assert_close(transform(y / 2**BITS).cpu(), x.cpu(), rtol=1e-3, atol=1.0)


def pool_by_windows(x: Tensor, parts: int) -> Tensor:
    """Each output is the mean of its own window, along the last dimension."""
    size = x.size(-1)
    windows = [x[..., size * part // parts : -(-size * (part + 1) // parts)] for part in range(parts)]
    return torch.stack([window.mean(-1) for window in windows], dim=-1)


def pools_natively(x: Tensor, parts: int) -> Tensor:
    """MPS raises: sizes must divide."""
    return functional.adaptive_avg_pool1d(x, parts)


def pools_with_one_stride(x: Tensor, parts: int) -> Tensor:
    """One window and one stride for all, as MPS pooled maxima."""
    stride = x.size(-1) // parts
    return functional.avg_pool1d(x, x.size(-1) - (parts - 1) * stride, stride)


@values
@pytest.mark.parametrize(("size", "parts"), [(5, 3), (7, 4), (10, 4)], ids=["5to3", "7to4", "10to4"])
@catches(pools_natively, pools_with_one_stride, pool=pool_by_windows)
def test_uneven_pool(pool: Callable[..., Tensor], size: int, parts: int, device: torch.device) -> None:
    """An average pool to a size that does not divide needs no adaptive op, and gives its numbers.

    pytorch/pytorch#97109, pytorch/pytorch#143864: MPS raises. 1.13 to 2.15.
    """
    x = uniform((2, 3, size)).to(device)
    with recorded(device) as seen:
        pooled = pool(x, parts)
    assert (pooled.shape, seen.of("uneven_pool")) == ((2, 3, parts), [])
    expected = functional.adaptive_avg_pool1d(x.cpu().double(), parts)
    torch.testing.assert_close(pooled.cpu().double(), expected, rtol=1e-5, atol=1e-6)


def pool_maxima_natively(x: Tensor, parts: int) -> Tensor:
    """As torch has it."""
    return functional.adaptive_max_pool2d(x, parts)


def pools_maxima_with_one_stride(x: Tensor, parts: int) -> Tensor:
    """What MPS did in 2.13: one window and one stride."""
    stride = x.size(-1) // parts
    return functional.max_pool2d(x, x.size(-1) - (parts - 1) * stride, stride)


@values
@pytest.mark.parametrize(("size", "parts"), [(5, 3), (7, 4)], ids=["5to3", "7to4"])
@catches(pools_maxima_with_one_stride, pool=pool_maxima_natively)
def test_uneven_pool_of_maxima(pool: Callable[..., Tensor], size: int, parts: int, device: torch.device) -> None:
    """An adaptive pool of maxima to a size that does not divide has windows of its own for each output.

    pytorch/pytorch#190064: silent on MPS, 2.13. On the CPU right on 1.13 to 2.15.
    """
    x = -torch.arange(float(size * size)).reshape(1, 1, size, size)
    edges = [(size * part // parts, -(-size * (part + 1) // parts)) for part in range(parts)]
    expected = [[float(x[0, 0, top:bottom, left:right].max()) for left, right in edges] for top, bottom in edges]
    assert pool(x.to(device), parts)[0, 0].tolist() == expected


def map_rows_natively(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """As torch has it."""
    return functional.linear(x, w, b)


def maps_sixteen_bits_of_rows(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Row numbers wrap at 2**16."""
    y = functional.linear(x, w, b)
    y[2**16 :] = y[: y.size(0) - 2**16]
    return y


@values
@catches(maps_sixteen_bits_of_rows, map_rows=map_rows_natively)
def test_linear_takes_more_than_65536_rows(map_rows: Callable[..., Tensor], device: torch.device) -> None:
    """A linear layer with a bias maps row 65536 and those after it like any other.

    pytorch/pytorch#189495 (MPS, 2.12 to 2.14). On the CPU right on 1.13 to 2.15.
    """
    x, w, b = uniform((2**16 + 3, 1, 2)).to(device), uniform((2, 2), "w").to(device), uniform((2,), "b").to(device)
    got = map_rows(x, w, b)[-4:].cpu().double()
    expected = functional.linear(x[-4:].cpu().double(), w.cpu().double(), b.cpu().double())
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def convolve_natively(x: Tensor, w: Tensor) -> Tensor:
    """As torch has it."""
    return functional.conv1d(x, w)


def convolves_sixteen_bits_of_channels(x: Tensor, w: Tensor) -> Tensor:
    """Channels beyond 65536 are never written."""
    return functional.pad(functional.conv1d(x, w[: 2**16]), (0, 0, 0, w.size(0) - 2**16))


def convolve_in_chunks(x: Tensor, w: Tensor) -> Tensor:
    """No convolution has more than 2**16 output channels."""
    return torch.cat([functional.conv1d(x, part) for part in w.split(2**16)], dim=1)


def _check_many_channels(convolve: Callable[..., Tensor], device: torch.device) -> None:
    x, w = uniform((1, 1, 3)).to(device), uniform((2**16 + 2, 1, 3), "w").to(device)
    got = convolve(x, w)[0, -3:].cpu().double()
    torch.testing.assert_close(got, functional.conv1d(x.cpu().double(), w[-3:].cpu().double())[0], rtol=1e-5, atol=1e-6)


@values
@catches(convolves_sixteen_bits_of_channels, convolve=convolve_in_chunks)
def test_convolution_to_many_channels_in_chunks(convolve: Callable[..., Tensor], device: torch.device) -> None:
    """A convolution to more than 65536 channels, in chunks of fewer, is right in the last.

    pytorch/pytorch#129207: MPS was wrong until 2.4 and raises since 2.5. 1.13 to 2.15.
    """
    _check_many_channels(convolve, device)


@values
@catches(convolves_sixteen_bits_of_channels, convolve=convolve_natively)
def test_convolution_to_many_channels_native(convolve: Callable[..., Tensor], device: torch.device) -> None:
    """A convolution to more than 65536 channels is right in the last.

    pytorch/pytorch#129207 (MPS). On the CPU right on 1.13 to 2.15.
    """
    _check_many_channels(convolve, device)


def sort_natively(x: Tensor) -> Tensor:
    """As torch has it."""
    return x.argsort(dim=0)


def sorts_blocks(x: Tensor) -> Tensor:
    """Blocks of 2**22 are sorted, and not merged."""
    return torch.cat([block.argsort(dim=0) + 2**22 * at for at, block in enumerate(x.split(2**22))])


@deep
@values
@catches(sorts_blocks, order=sort_natively)
def test_millions_are_sorted(order: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """`argsort` along the first dimension is right beyond 2**22 elements.

    pytorch/pytorch#183885 (MPS). On the CPU right on 1.13 to 2.15.
    """
    x = uniform((2**22 + 64, 1)).to(device)
    in_order = x.gather(0, order(x)).cpu()
    assert bool((in_order[1:] >= in_order[:-1]).all())
