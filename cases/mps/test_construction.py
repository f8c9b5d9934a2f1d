"""Tensors made beside another: on its device, in a dtype that the device holds.

A cpu cell has no second device, so meta stands for it: what is left on the host shows, and needs no accelerator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import constant_like
from conformance.incell import catches, requires
from conformance.instruments.dispatching import elsewhere, recorded

FACTORIES: dict[str, Callable[..., Tensor]] = {
    "arange": functools.partial(torch.arange, 4),
    "zeros": functools.partial(torch.zeros, 4),
    "eye": functools.partial(torch.eye, 4),
    "full": functools.partial(torch.full, (4,), 1.0),
    "linspace": functools.partial(torch.linspace, 0.0, 1.0, 4),
    "tril_indices": functools.partial(torch.tril_indices, 4, 4),
    "rand": functools.partial(torch.rand, 4),
    "randperm": functools.partial(torch.randperm, 4),
    "tensor": functools.partial(torch.tensor, [1.0, 2.0]),
}


def make_beside(factory: Callable[..., Tensor], x: Tensor) -> Tensor:
    """The device is that of the tensor at hand."""
    return factory(device=x.device)


def makes_on_the_host(factory: Callable[..., Tensor], x: Tensor) -> Tensor:
    """No device is given."""
    del x
    return factory()


def makes_and_moves(factory: Callable[..., Tensor], x: Tensor) -> Tensor:
    """Right in the end, by a copy from the host on each call."""
    return factory().to(x.device)


@pytest.mark.parametrize("factory", FACTORIES)
@catches(makes_on_the_host, makes_and_moves, make=make_beside)
def test_factory_makes_beside_its_input(make: Callable[..., Tensor], factory: str, device: torch.device) -> None:
    """What a forward pass makes is made where its input is, not on the host, and not moved from there.

    GRAAL-Research/deepparse#298 (a length mask on the CPU). 1.13 to 2.15.
    """
    target = elsewhere(device)
    x = torch.ones(4, device=target)
    with recorded(target) as seen:
        made = make(FACTORIES[factory], x)
    assert (made.device.type, seen.of("stray", "copy")) == (target.type, [])


def wraps_on_the_host(x: Tensor, value: float) -> Tensor:
    """A 0-dim tensor of the CPU mixes with all devices, so nobody notices."""
    return torch.tensor(value, dtype=x.dtype)


def wraps_and_moves(x: Tensor, value: float) -> Tensor:
    """A copy that the device waits for, in every forward pass."""
    return torch.tensor(value, dtype=x.dtype).to(x.device)


@catches(wraps_on_the_host, wraps_and_moves, make=constant_like)
def test_constant_in_forward_is_beside_its_input(make: Callable[..., Tensor], device: torch.device) -> None:
    """A constant of a forward pass is on its input's device, so that no op takes tensors of two.

    huggingface/transformers#23534 (the lowest number of a dtype, wrapped on another device). Guard `constant_like`, 1.13 to 2.15.
    """
    target = elsewhere(device)
    x = torch.ones(4, device=target)
    with recorded(target) as seen:
        product = x * make(x, 0.5)
    assert (product.device.type, seen.of("stray", "copy", "crossing")) == (target.type, [])


class BufferedMask(nn.Module):
    """The mask is a buffer: it moves with the module and stays out of checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(4, 4).tril(), persistent=False)

    def mask(self, length: int) -> Tensor:
        """The first rows."""
        kept = self.kept
        assert isinstance(kept, Tensor)
        return kept[:length, :length]


class AttributeMask(nn.Module):
    """A plain attribute does not move."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.ones(4, 4).tril()

    def mask(self, length: int) -> Tensor:
        """The first rows."""
        return self.kept[:length, :length]


class ListedMasks(nn.Module):
    """Nor does a tensor in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.ones(n, n).tril() for n in range(5)]

    def mask(self, length: int) -> Tensor:
        """The one of that length."""
        return self.kept[length]


class LengthKeyedMask(nn.Module):
    """A cache that is keyed by the length alone keeps the first device."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, Tensor] = {}
        self.scale = nn.Parameter(torch.ones(()))

    def mask(self, length: int) -> Tensor:
        """Made on the device of the first call."""
        if length not in self.cache:
            self.cache[length] = torch.ones(length, length, device=self.scale.device).tril()
        return self.cache[length]


@catches(AttributeMask, ListedMasks, LengthKeyedMask, module=BufferedMask)
def test_kept_mask_moves_with_its_module(module: type[Any], device: torch.device) -> None:
    """A mask that a module keeps is where the module is, after it was used on the host and moved.

    unit8co/darts#3052 (cached by batch size), pytorch/pytorch#18056. 1.13 to 2.15.
    """
    target = elsewhere(device)
    holder = module()
    holder.mask(3)
    assert holder.to(target).mask(3).device.type == target.type


class FollowsDefaultDevice(nn.Module):
    """Its table is made by torch, which asks for the default device."""

    def __init__(self, numbers: Any) -> None:
        super().__init__()
        self.register_buffer("table", torch.as_tensor(numbers))


class StaysWithNumpy(nn.Module):
    """`from_numpy` shares numpy's memory, and so stays on the host."""

    def __init__(self, numbers: Any) -> None:
        super().__init__()
        self.register_buffer("table", torch.from_numpy(numbers))


@requires("torch.set_default_device")
@catches(StaysWithNumpy, module=FollowsDefaultDevice)
def test_default_device_reaches_tables(module: type[nn.Module], device: torch.device) -> None:
    """A module built under `with torch.device(...)` has its numpy tables there too, if `as_tensor` makes them.

    Observed: since 2.0; `from_numpy` stays on the host to 2.15.
    """
    numpy = pytest.importorskip("numpy")
    target = elsewhere(device)
    with target:
        (table,) = module(numpy.arange(4, dtype=numpy.float32)).buffers()
        torch.ones(1)
    assert table.device.type == target.type
