"""torch.jit.trace and what becomes of sizes: recorded, or frozen as those of the example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.capture import trace
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def _rows(device: torch.device, *shapes: tuple[int, ...]) -> dict[str, tuple[Tensor, ...]]:
    return {"x".join(map(str, shape)): (uniform(shape).to(device),) for shape in shapes}


def split_by_sizes(x: Tensor) -> Tensor:
    """Batch and length as the tracer records them."""
    batch, length, _ = x.size()
    return x.view(batch, length, 2, 4).transpose(1, 2).contiguous()


def splits_by_int_sizes(x: Tensor) -> Tensor:
    """Batch and length mapped to int."""
    batch, length, _ = map(int, x.size())
    return x.view(batch, length, 2, 4).transpose(1, 2).contiguous()


@catches(splits_by_int_sizes, split=split_by_sizes)
def test_heads_follow_batch_and_length(split: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """Splitting heads by recorded sizes follows batch and length.

    The article on tracing OPT; pytorch/pytorch#138973. With `map(int, x.size())` a 7x1 input comes out as 1x7, in silence.
    1.13 to 2.15.
    """
    shapes = ((1, 7, 8), (1, 5, 8), (2, 7, 8), (4, 3, 8), (7, 1, 8))
    assert check_trace(split, _rows(device, *shapes), observe, stage).warned == ()


def divide_by_shape(x: Tensor) -> Tensor:
    """The batch from the shape."""
    return x.sum(0) / x.shape[0]


def divide_by_numel(x: Tensor) -> Tensor:
    """The number of elements, recorded since 1.13."""
    return x.sum() / x.numel()


def divides_by_len(x: Tensor) -> Tensor:
    """`len` is a Python number."""
    return x.sum(0) / len(x)


@catches(divides_by_len, mean=divide_by_shape)
def test_mean_follows_batch(mean: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """A mean over the batch follows the batch when it divides by `shape[0]`, not by `len`.

    pytorch/pytorch#55194. 1.13 to 2.15.
    """
    assert check_trace(mean, _rows(device, (2, 4), (6, 4), (1, 4)), observe, stage).warned == ()


@catches(divides_by_len, mean=divide_by_numel)
def test_mean_follows_numel(mean: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """A mean over all elements follows `numel`.

    pytorch/pytorch#74047, pytorch/pytorch#49372. 1.13 to 2.15.
    """
    assert check_trace(mean, _rows(device, (2, 4), (3, 5)), observe, stage).warned == ()


def measure_by_size(x: Tensor) -> list[Any]:
    """size, shape and numel."""
    return [x.size(0), x.shape[1], x.numel()]


def measures_by_len(x: Tensor) -> list[Any]:
    """len in place of size."""
    return [len(x), x.shape[1], x.numel()]


@catches(measures_by_len, measure=measure_by_size)
def test_sizes_are_tensors_while_tracing(measure: Callable[[Tensor], list[Any]], device: torch.device) -> None:
    """Sizes are integers in eager code and tensors while the tracer runs, so that what is made of them is recorded.

    The article's question why `.size()` gives tensors; pytorch/pytorch#138973, pytorch/pytorch#19349. 1.13 to 2.15.
    """
    seen: list[list[type]] = []

    def code(x: Tensor) -> Tensor:
        seen.append([type(size) for size in measure(x)])
        return x + 1

    x = uniform((2, 3)).to(device)
    code(x)
    trace(code, (x,), check_trace=False)
    assert seen == [[int] * 3, [Tensor] * 3]


def batch_by_view(windows: Tensor) -> Tensor:
    """The batch is what `view` makes of -1."""
    channels = windows.shape[-1]
    return windows.view(-1, 2, 2, 2, 2, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, channels)


def computes_batch_as_int(windows: Tensor) -> Tensor:
    """The batch by division, as a Python number."""
    batch = int(windows.shape[0] / (4 * 4 / 2 / 2))
    return windows.view(batch, 2, 2, 2, 2, -1).permute(0, 1, 3, 2, 4, 5).reshape(batch, 4, 4, -1)


@catches(Twin(computes_batch_as_int, "raises"), merge=batch_by_view)
def test_windows_follow_batch(merge: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """Windows merge back into images of any batch when the batch is left to `view`.

    huggingface/pytorch-image-models#1673. 1.13 to 2.15.
    """
    assert check_trace(merge, _rows(device, (8, 2, 2, 3), (4, 2, 2, 3), (20, 2, 2, 3)), observe, stage).warned == ()


def pad_by_integers(x: Tensor) -> Tensor:
    """Round up in integer arithmetic on recorded sizes."""
    height, width = (x.shape[-2] + 7) // 8 * 8, (x.shape[-1] + 7) // 8 * 8
    return functional.pad(x, (0, width - x.shape[-1], 0, height - x.shape[-2]))


def pads_by_ceil(x: Tensor) -> Tensor:
    """Round up by math.ceil, which wants a Python number."""
    height, width = int(math.ceil(x.shape[-2] / 8) * 8), int(math.ceil(x.shape[-1] / 8) * 8)
    return functional.pad(x, (0, width - x.shape[-1], 0, height - x.shape[-2]))


@catches(pads_by_ceil, pad=pad_by_integers)
def test_padding_follows_image(pad: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """An image is padded to a multiple of 8 of its own size, not of the example's.

    facebookresearch/detectron2#1208, facebookresearch/detectron2#5025: silent. 1.13 to 2.15.
    """
    shapes = ((1, 10, 13), (1, 8, 16), (1, 17, 20), (1, 5, 3))
    assert check_trace(pad, _rows(device, *shapes), observe, stage).warned == ()


def write_by_sizes(x: Tensor) -> Tensor:
    """Bounds of writes and slices as recorded."""
    x = x.clone()
    x[:, -x.shape[1] :, 0] = 5
    return x[:, : x.shape[1] // 2]


def writes_by_int_bounds(x: Tensor) -> Tensor:
    """The same bounds as Python numbers."""
    x = x.clone()
    x[:, -int(x.shape[1]) :, 0] = 5
    return x[:, : int(x.shape[1]) // 2]


@catches(writes_by_int_bounds, write=write_by_sizes)
def test_slices_follow_sizes(write: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """Writes and slices whose bounds come from sizes follow them.

    pytorch/pytorch#43548, pytorch/pytorch#45828. 1.13 to 2.15.
    """
    assert check_trace(write, _rows(device, (1, 4, 3), (1, 2, 3), (1, 9, 3)), observe, stage).warned == ()
