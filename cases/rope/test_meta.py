"""Models built on meta: their tables are in no checkpoint, so nothing but their own code can write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, dtypes, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation

Build = Callable[..., Any]
#: Sizes of this file alone, and a base for each case: memory that an earlier table left must not pass for a right one.
DIM, ROWS = 24, 37


class KeepsTables(nn.Module):
    """Tables in plain buffers, written at construction."""

    cos: Tensor

    def __init__(self, head_dim: int, rows: int, base: float, device: Any = None) -> None:
        super().__init__()
        channels = torch.arange(0, head_dim, 2, device=device).float()
        angles = torch.arange(rows, device=device).float()[:, None] * base ** (channels / -head_dim)
        self.register_buffer("cos", angles.cos(), persistent=False)


def _off(table: Tensor, base: float) -> float:
    return rotation.error(table, rotation.angles(range(ROWS), DIM, base).cos())


@values
@dtypes("float32", "bfloat16")
@catches(KeepsTables, cache=RotaryCache)
def test_memory_given_later(cache: Build, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]) -> None:
    """A table built and cast on meta is right after `to_empty`, with a strict load that finds nothing missing.

    NovaSky-AI/SkyRL#1709 (NaN on all ranks but the first), huggingface/transformers#45902, pytorch/torchtitan#2450. 1.13 to 2.15.
    """
    module = cache(DIM, rows=ROWS, base=7001.0, device="meta").to(dtype).to_empty(device=device)
    assert module.load_state_dict({}, strict=True) == ([], [])
    off = _off(module.cos, 7001.0)
    observe("error", round(off, 5), better="lower")
    assert (module.cos.dtype, module.cos.device.type) == (dtype, device.type)
    assert off < torch.finfo(dtype).eps + 1e-5


@values
@catches(KeepsTables, cache=RotaryCache)
def test_module_built_without_numbers(cache: Build, device: torch.device) -> None:
    """`torch.nn.utils.skip_init` of a module with a table leaves a right table.

    skip_init is meta and `to_empty` (pytorch/torchtitan#2450). Holds on 1.13 to 2.15.
    """
    assert _off(torch.nn.utils.skip_init(cache, DIM, rows=ROWS, base=7002.0, device=device).cos, 7002.0) < 1e-5


@values
@catches(KeepsTables, cache=RotaryCache)
def test_memory_given_twice(cache: Build, device: torch.device) -> None:
    """`to_empty` on the device where a module is already makes its memory new, and leaves a right table all the same.

    NovaSky-AI/SkyRL#1709. Holds on 1.13 to 2.15.
    """
    module = cache(DIM, rows=ROWS, base=7003.0, device=device)
    module.cos.mul_(0)  # lest the same memory comes back with its numbers
    assert _off(module.to_empty(device=device).cos, 7003.0) < 1e-5


def write_after_replacing(module: RotaryCache) -> None:
    """The module's own reset."""
    module.reset_parameters()


def trusts_the_loader(module: RotaryCache) -> None:
    """Whatever the loader left."""


def casts_and_trusts(module: RotaryCache) -> None:
    """A cast to the dtype that it has: nothing is new, nothing is written."""
    module.float()


@values
@catches(trusts_the_loader, casts_and_trusts, finish=write_after_replacing)
def test_buffers_replaced_behind_the_module(finish: Callable[[RotaryCache], None], device: torch.device) -> None:
    """A loader that puts empty tensors into `_buffers` itself goes past `_apply`; the module's reset writes them.

    huggingface/transformers#45902. Holds on 1.13 to 2.15.
    """
    module = RotaryCache(DIM, rows=ROWS, base=7004.0, device="meta")
    for name, meta in list(module._buffers.items()):
        assert meta is not None
        module._buffers[name] = torch.full(meta.shape, float("nan"), device=device)
    finish(module)
    assert _off(module.cos, 7004.0) < 1e-5


class WritesAtEveryTouch(RotaryCache):
    """Writes its tables whenever the module is touched, changed or not."""

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        super()._apply(*arguments, **options)
        self.reset_parameters()
        return self


#: What code does to a model, to be sure, between a forward pass and its backward pass.
TOUCHES: dict[str, Callable[[Any, torch.device], Any]] = {
    "moved_where_it_is": lambda module, device: module.to(device),
    "cast_to_what_it_is": lambda module, device: module.float(),
}


@values
@pytest.mark.parametrize("touch", TOUCHES)
@catches(Twin(WritesAtEveryTouch, "raises"), cache=RotaryCache)
def test_touch_between_forward_and_backward(cache: Build, touch: str, device: torch.device) -> None:
    """A `.to()` that changes nothing leaves the very tensors unwritten, so that a backward pass can still read them.

    Observed here: `Module._apply` keeps a buffer that its function returns, on 1.13 to 2.15.
    """
    module, x = cache(4, rows=8, device=device), torch.ones(1, 8, 1, 4, device=device, requires_grad=True)
    before, turned = module.cos, rotate(x, *module(8))
    TOUCHES[touch](module, device)
    assert module.cos is before
    turned.sum().backward()
