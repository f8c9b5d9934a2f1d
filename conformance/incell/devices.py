"""The devices behind one small face: whether one is there, a synchronise, and a way to say what ran there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from conformance.incell.meters import AllocationMeter, DispatchMeter, Meter, WarningMeter, XlaMeter


@dataclass(frozen=True)
class Backend:
    """One kind of device. Every member is cheap until it is called."""

    name: str
    #: The module that must be imported before torch knows the device.
    module: str = ""

    def activate(self) -> Any:
        """The torch.device of this cell, its module loaded and its runtime started.

        Autograd makes a queue for each device that is there at the first backward pass of a process. An XLA device that comes later has
        none, and every backward pass on it fails: so it is there before a case may go backward on the CPU.
        """
        if self.module:
            importlib.import_module(self.module).device()
        return importlib.import_module("torch").device(self.name)

    def is_there(self) -> bool:
        """Whether torch says that the device is there, which is no proof that it works; True for a device that has no such question."""
        torch = importlib.import_module("torch")
        owner = torch.backends if self.name == "mps" else torch
        ask = getattr(getattr(owner, self.name, None), "is_available", None)
        return bool(ask()) if self.name in ("cuda", "mps", "xpu") and ask is not None else self.name not in ("mps", "xpu")

    def synchronize(self) -> None:
        """Wait until the device did what it was given, so that a late error is blamed on the case that owns it."""
        torch = importlib.import_module("torch")
        if self.name == "xla":
            importlib.import_module("torch_xla.core.xla_model").mark_step(wait=True)
        elif self.name in ("cuda", "mps", "xpu"):
            getattr(torch, self.name).synchronize()

    def meter(self, *, dispatch: bool) -> Meter:
        """What counts ops of one case; without `dispatch` only counters that do not change what is measured."""
        if self.name == "cpu":
            return Meter()
        if self.name == "xla":
            return XlaMeter()
        if dispatch:
            return DispatchMeter(self.name)
        if self.name in ("cuda", "xpu"):
            stats = getattr(importlib.import_module("torch"), self.name).memory_stats
            return AllocationMeter(lambda: int(stats().get("allocation.all.allocated", 0)))
        return WarningMeter()

    def label(self) -> str:
        """The device's name as its vendor gives it."""
        if self.name in ("cuda", "xpu"):
            return str(getattr(importlib.import_module("torch"), self.name).get_device_name(0))
        return self.name


BACKENDS = {name: Backend(name) for name in ("cpu", "meta", "cuda", "mps", "xpu")}
BACKENDS["xla"] = Backend("xla", module="torch_xla")


def backend(name: str) -> Backend:
    """The backend of that device; a device that this file does not know is taken as torch knows it."""
    return BACKENDS.get(name, Backend(name))
