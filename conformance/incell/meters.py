"""What ran on the device while a case ran, and what fell back to the CPU."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

#: How MPS and XPU tell of an op that they hand to the CPU (MPSFallback.mm; XPUFallback of torch-xpu-ops, which leaves out a quote).
_FALLBACK = re.compile(
    r"operator '([^' ]+)'? (?:is not currently supported on the MPS backend and will fall back|on the XPU backend is falling)"
)
#: Ops that ran elsewhere are named where none ran on the device; more of them say no more.
_NAMED = 6


class Meter:
    """Counts what ran on the device while a case ran. `on` is None where nothing could count."""

    def __init__(self) -> None:
        self.on: int | None = None
        self.fallback: list[str] = []
        #: Ops that ran elsewhere, in order, kept until one runs on the device.
        self.elsewhere: list[str] = []

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
        """`{"on": number of ops, "fallback": their names}`, or None where nothing could count and nothing was told."""
        if self.on is None and not self.fallback:
            return None
        return {"on": self.on, "fallback": sorted(set(self.fallback))}

    def unexercised(self) -> str:
        """Why a green case says nothing of the device: ops that fell back, or none that ran there; empty otherwise."""
        if self.fallback:
            return f"fell back to the CPU: {', '.join(sorted(set(self.fallback)))}"
        if self.on != 0:
            return ""
        ran = f"; elsewhere ran {', '.join(self.elsewhere[:_NAMED])}" if self.elsewhere else ""
        return f"no op ran on the device{ran}"


class WarningMeter(Meter):
    """Where nothing can count: hears what the backend tells of ops that fall back."""

    def counting(self) -> AbstractContextManager[Any]:
        """A context in which the backend tells of every op."""
        return _telling_always()


class DispatchMeter(Meter):
    """Counts ops whose result lies on the device, by a dispatch mode around the call."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self.on = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """The dispatch mode, in which the backend tells of every op that falls back."""
        with ExitStack() as stack:
            stack.enter_context(_telling_always())
            stack.enter_context(self._mode())
            yield

    def _mode(self) -> AbstractContextManager[Any]:
        mode = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
        tree = importlib.import_module("torch.utils._pytree")
        torch, meter = importlib.import_module("torch"), self

        class Counting(mode):  # type: ignore[misc, valid-type]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                flat = tree.tree_flatten(result)[0]
                meter.saw(func, any(isinstance(leaf, torch.Tensor) and leaf.device.type == meter._device for leaf in flat))
                return result

        counting: AbstractContextManager[Any] = Counting()
        return counting

    def saw(self, op: Any, on_device: bool) -> None:
        """An op ran."""
        if on_device:
            self.on = (self.on or 0) + 1
        elif not self.on and len(self.elsewhere) < _NAMED and str(op) not in self.elsewhere:
            self.elsewhere.append(str(op))


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

    def counting(self) -> AbstractContextManager[Any]:
        """A context in which the backend tells of every op that falls back."""
        return _telling_always()

    def stop(self) -> None:
        """Take the difference since the case began."""
        self.on = self._allocations() - self._before


@contextmanager
def _telling_always() -> Iterator[None]:
    """Without this a process tells of the first op that falls back and of no other: the warning is TORCH_WARN_ONCE (MPSFallback.mm)."""
    torch = importlib.import_module("torch")
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(before)
