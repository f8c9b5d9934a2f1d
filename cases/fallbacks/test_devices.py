"""Which device is there, and where a new tensor goes: questions that names and builds answer wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from conformance.guards import default_device, is_usable, synchronize, working_accelerator
from conformance.incell import Twin, catches, host, requires, values

Where = Callable[[], torch.device]


def assumes_cpu() -> torch.device:
    """Where tensors went before there were defaults."""
    return torch.device("cpu")


def reads_the_parameterless_module() -> torch.device:
    """The device of the first parameter, with one where there is none."""
    return next(torch.nn.Identity().parameters(), torch.empty(0, device="cpu")).device


def _check_default(where: Where) -> None:
    assert where() == torch.device("cpu")
    with torch.device("meta"):
        assert where().type == "meta"
        with torch.device("cpu"):
            assert where().type == "cpu"
    torch.set_default_device("meta")
    try:
        assert where().type == "meta"
    finally:
        _unset_default_device()


def _unset_default_device() -> None:
    """As before any default was set: on 2.4 to 2.8 `set_default_device(None)` leaves what `get_default_device` breaks on."""
    torch.set_default_device(None)
    held = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if held is not None and getattr(held, "device_context", held) is None:
        del held.device_context


@host
@requires("torch.set_default_device")
@catches(assumes_cpu, reads_the_parameterless_module, where=default_device)
def test_default_device(where: Where) -> None:
    """The default device is the one of `with torch.device(...)`, nested ones included, and of `set_default_device`.

    pytorch/pytorch#131328, Lightning-AI/torchmetrics#3448. Since 2.0.
    """
    _check_default(where)


def ask_torch() -> torch.device:
    """torch's own answer."""
    return torch.get_default_device()


@host
@requires("torch.get_default_device")
@catches(assumes_cpu, where=ask_torch)
def test_default_device_native(where: Where) -> None:
    """`torch.get_default_device` says where a factory puts its tensor.

    pytorch/pytorch#131328, fixed by pytorch/pytorch#148621. From 2.3 to 2.7 it does not see `with torch.device(...)`; right since 2.8.
    """
    _check_default(where)


@host
@requires("torch.get_default_device")
def test_default_device_unset_native() -> None:
    """After `set_default_device(None)` the default device is the CPU again, and can be asked for.

    Observed here: `torch.get_default_device` raises AttributeError then on 2.3 to 2.9; right since 2.10.
    """
    torch.set_default_device("meta")
    try:
        torch.set_default_device(None)
        assert torch.get_default_device() == torch.device("cpu")
    finally:
        _unset_default_device()


def trusts_the_name(device: torch.device | str) -> bool:
    """A device that parses."""
    return bool(str(torch.device(device)))


def trusts_its_module(device: torch.device | str) -> bool:
    """`hasattr(torch, "cuda")`: the module is in every build, and any device is like it."""
    return hasattr(torch, torch.device(device).type) or hasattr(torch.backends, "cuda")


@values
@catches(trusts_the_name, trusts_its_module, probe=is_usable)
def test_probe_of_a_device(probe: Callable[..., bool], device: torch.device, observe: Callable[..., None]) -> None:
    """A probe says yes to the device of this run, and no to one that parses and is not there.

    pytorch/pytorch#144567 (availability that raises). 1.13 to 2.15.
    """
    observe("usable", ", ".join(kind for kind in ("cpu", "cuda", "mps", "xpu") if probe(kind)))
    assert probe(device)
    assert not probe("hpu")


def names_any(candidates: tuple[str, ...] = ("hpu",)) -> torch.device | None:
    """The first name that torch knows."""
    return next(torch.device(name) for name in candidates)


@host
@catches(names_any, find_one=working_accelerator)
def test_accelerator_is_usable(find_one: Callable[[], torch.device | None], observe: Callable[..., None]) -> None:
    """The accelerator found is one on which an op runs, or None.

    pytorch/pytorch#146098: torch names what the wheel was built for. 1.13 to 2.15.
    """
    found = find_one()
    observe("accelerator", str(found))
    assert found is None or is_usable(found)


@host
@requires("torch.accelerator")
@pytest.mark.parametrize("how", ["plain", "checked"])
def test_accelerator_native(how: str, observe: Callable[..., None]) -> None:
    """`torch.accelerator.current_accelerator()` is None or a device on which an op runs.

    pytorch/pytorch#144567, pytorch/pytorch#146098. Without a GPU 2.6 raises; a CUDA build since 2.7 names cuda, unless asked with
    `check_available=True`, which 2.6 does not take; a CPU build says None.
    """
    options = {"check_available": True} if how == "checked" else {}
    found = torch.accelerator.current_accelerator(**options)
    observe("accelerator", str(found))
    assert found is None or is_usable(found)


@host
@requires("torch.accelerator")
def test_accelerator_availability_native() -> None:
    """`torch.accelerator.is_available()` answers, and agrees with an op on the device.

    pytorch/pytorch#144567 (raised before 2.6 was out). 2.6 to 2.15.
    """
    assert torch.accelerator.is_available() == (working_accelerator() is not None)


def asks_the_module_of_the_name(device: torch.device | str) -> None:
    """`torch.<kind>.synchronize()`: not every kind has a module, and not every module waits."""
    getattr(torch, torch.device(device).type).synchronize()


@catches(Twin(asks_the_module_of_the_name, "raises"), wait=synchronize)
def test_waiting_for_any_device(wait: Callable[..., None], device: torch.device) -> None:
    """Waiting for a device works on this run's and on meta, where there is nothing to wait for.

    Observed here: `torch.meta` is no module, and `torch.cpu.synchronize` came with 2.1. 1.13 to 2.15.
    """
    torch.ones(2, device=device)
    wait(device)
    wait("meta")


def module_of(device: torch.device) -> object:
    """By torch."""
    return torch.get_device_module(device)


def module_of_another(device: torch.device) -> object:
    """CUDA's, as everywhere in old code; on CUDA another one."""
    return torch.cpu if device.type == "cuda" else torch.cuda


@requires("torch.get_device_module")
@catches(module_of_another, choose=module_of)
def test_module_of_a_device(choose: Callable[..., object], device: torch.device, observe: Callable[..., None]) -> None:
    """`torch.get_device_module` of a device is the module of its kind.

    torch documentation: since 2.4. Without an argument it goes by the build: on a CUDA build without a GPU the CPU's module on 2.4
    to 2.12 and CUDA's on 2.15, observed here.
    """
    if not hasattr(torch, device.type):
        pytest.skip(f"torch has no module for {device.type}")
    observe("default_module", getattr(torch.get_device_module(), "__name__", "none"))
    assert choose(device) is getattr(torch, device.type)
