"""The devices behind one small face: a probe, a synchronise, and a way to say what ran there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

_FALLBACK = re.compile(r"operator '([^']+)' is not currently supported on the MPS backend")


class ProbeError(Exception):
    """The device did not do one real op right; the message says what happened."""


class Meter:
    """Counts what ran on the device while a case ran. `on` is None where nothing could count."""

    def __init__(self) -> None:
        self.on: int | None = None
        self.fallback: list[str] = []

    def counting(self) -> AbstractContextManager[Any]:
        """A context around the case's call."""
        return nullcontext()

    def stop(self) -> None:
        """Read the counters."""

    def warned(self, message: str) -> None:
        """A warning was shown: it may name an op that fell back to the CPU."""
        found = _FALLBACK.search(message)
        if found:
            self.fallback.append(found.group(1))

    def as_record(self) -> dict[str, Any] | None:
        """`{"on": number of ops, "fallback": their names}`, or None where nothing could count."""
        return None if self.on is None else {"on": self.on, "fallback": sorted(set(self.fallback))}


class DispatchMeter(Meter):
    """Counts ops whose result lies on the device, by a dispatch mode around the call."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self.on = 0

    def counting(self) -> AbstractContextManager[Any]:
        """The dispatch mode."""
        mode = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
        tree = importlib.import_module("torch.utils._pytree")
        torch, meter = importlib.import_module("torch"), self

        class Counting(mode):  # type: ignore[misc, valid-type]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                flat = tree.tree_flatten(result)[0]
                if any(isinstance(leaf, torch.Tensor) and leaf.device.type == meter._device for leaf in flat):
                    meter.on = (meter.on or 0) + 1
                return result

        return Counting()


class XlaMeter(Meter):
    """Reads torch-xla's own counters: `xla::` ops were lowered, `aten::` ops went to the CPU (torch_xla.debug.metrics)."""

    #: Transfers, not fallbacks: a value is read on the host because the case asks for it.
    _TRANSFERS = frozenset({"aten::_local_scalar_dense"})

    def __init__(self) -> None:
        super().__init__()
        self._metrics = importlib.import_module("torch_xla.debug.metrics")
        self._before = self._counters()

    def _counters(self) -> dict[str, int]:
        names = [name for name in self._metrics.counter_names() if name.startswith(("xla::", "aten::"))]
        return {name: self._metrics.counter_value(name) or 0 for name in names}

    def stop(self) -> None:
        """Take the difference of the counters since the case began."""
        moved = {name: value - self._before.get(name, 0) for name, value in self._counters().items()}
        self.on = sum(count for name, count in moved.items() if name.startswith("xla::"))
        self.fallback += [name for name, count in moved.items() if count > 0 and name.startswith("aten::") and name not in self._TRANSFERS]


class AllocationMeter(Meter):
    """Where no dispatch mode may be used: counts allocations on an accelerator, which show that it was touched."""

    def __init__(self, allocations: Callable[[], int]) -> None:
        super().__init__()
        self._allocations = allocations
        self._before = allocations()

    def stop(self) -> None:
        """Take the difference since the case began."""
        self.on = self._allocations() - self._before


@dataclass(frozen=True)
class Backend:
    """One kind of device. Every member is cheap until it is called."""

    name: str
    #: The module that must be imported before torch knows the device.
    module: str = ""

    def activate(self) -> Any:
        """The torch.device of this cell, its module loaded."""
        if self.module:
            importlib.import_module(self.module)
        return importlib.import_module("torch").device(self.name)

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
        return Meter()

    def probe(self) -> str:
        """Run one real op and compare; returns the device's name as its vendor gives it. Raises ProbeError."""
        torch = importlib.import_module("torch")
        try:
            device = self.activate()
            left = torch.arange(6.0, device=device).reshape(2, 3)
            product = left @ left.t()
            self.synchronize()
            right = product.shape == (2, 2) if self.name == "meta" else product.cpu().tolist() == [[5.0, 14.0], [14.0, 50.0]]
        except Exception as error:
            raise ProbeError(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
        if not right:
            raise ProbeError(f"a 2x3 matrix product came back wrong: {product!r}")
        return self._label(torch)

    def _label(self, torch: Any) -> str:
        if self.name in ("cuda", "xpu"):
            return str(getattr(torch, self.name).get_device_name(0))
        return self.name


BACKENDS = {name: Backend(name) for name in ("cpu", "meta", "cuda", "mps", "xpu")}
BACKENDS["xla"] = Backend("xla", module="torch_xla")


def backend(name: str) -> Backend:
    """The backend of that device; a device that this file does not know is taken as torch knows it."""
    return BACKENDS.get(name, Backend(name))
