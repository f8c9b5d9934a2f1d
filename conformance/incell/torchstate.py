"""Global state of torch that a case could leak: seeded before each case, put back after it, so that order changes no verdict."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any


def torch_module() -> Any:
    """torch if something imported it already, else None: the plugin itself never imports it."""
    return sys.modules.get("torch")


def seed_all(seed: int, device: str) -> None:
    """Seed Python's, numpy's and torch's generators, those of the cell's accelerator included."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed(seed % 2**32)
    torch = torch_module()
    if torch is not None:
        if device in ("cpu", "meta"):  # to seed an accelerator that was not asked for yet, torch formats the stack and keeps it
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        if device == "xla" and "torch_xla" in sys.modules:
            sys.modules["torch_xla"].manual_seed(seed)


def forget_last_error() -> None:
    """Free what a failed case holds on its device: pytest keeps the last error, and with it the frames that hold tensors.

    XLA computes all tensors that live when it is waited for: one that it cannot compute would fail each case that follows.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        sys.__dict__.pop(name, None)
    gc.collect()


_SWITCHES: tuple[tuple[str, Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    ("default dtype", lambda torch: torch.get_default_dtype(), lambda torch, value: torch.set_default_dtype(value)),
    ("grad mode", lambda torch: torch.is_grad_enabled(), lambda torch, value: torch.set_grad_enabled(value)),
    (
        "deterministic algorithms",
        lambda torch: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda torch, value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    ("threads", lambda torch: torch.get_num_threads(), lambda torch, value: torch.set_num_threads(value)),
    ("anomaly mode", lambda torch: torch.is_anomaly_enabled(), lambda torch, value: torch.autograd.set_detect_anomaly(value)),
    (
        "float32 matmul precision",
        lambda torch: torch.get_float32_matmul_precision(),
        lambda torch, value: torch.set_float32_matmul_precision(value),
    ),
)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _go_back(before: str) -> None:
    with contextlib.suppress(OSError):  # the case removed it: there is nowhere to go back to
        os.chdir(before)


def _put_path(before: tuple[str, ...]) -> None:
    sys.path[:] = before


def _disarm(before: tuple[float, float]) -> None:
    signal.setitimer(signal.ITIMER_REAL, *before)


#: What a case could leave behind in the process itself, with how it is read and put back.
_PROCESS: tuple[tuple[str, Callable[[], Any], Callable[[Any], None]], ...] = (
    ("working directory", _folder, _go_back),
    ("sys.path", lambda: tuple(sys.path), _put_path),
    ("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    ("alarm", lambda: signal.getitimer(signal.ITIMER_REAL), _disarm),
)


class TorchState:
    """A snapshot of the switches; `restore` puts back those that moved and names them."""

    def __init__(self) -> None:
        torch = torch_module()
        self._switches = [] if torch is None else [get(torch) for _, get, _ in _SWITCHES]
        self._environ = _environ()
        self._process = [get() for _, get, _ in _PROCESS]
        self._stance = _default_device(torch)

    def restore(self) -> list[str]:
        """Put back what the case moved; returns the names of what it had leaked."""
        leaked = []
        torch = torch_module()
        for (name, get, put), before in zip(_SWITCHES, self._switches):
            if get(torch) != before:
                put(torch, before)
                leaked.append(name)
        if _default_device(torch) != self._stance:
            torch.set_default_device(self._stance)
            leaked.append("default device")
        leaked += self._restore_environ()
        for (name, now, put_back), then in zip(_PROCESS, self._process):
            if now() != then:
                put_back(then)
                leaked.append(name)
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is not None and hasattr(dynamo, "reset"):
            dynamo.reset()
        return leaked

    def _restore_environ(self) -> list[str]:
        now, before = _environ(), self._environ
        if now == before:
            return []
        moved = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name) and name != _OF_PYTEST)
        for name in moved:
            if name in before:
                os.environb[name] = before[name]
            else:
                del os.environb[name]
        return [f"variable {os.fsdecode(name)}" for name in moved]


#: pytest's own, which it sets and takes away around a case.
_OF_PYTEST = b"PYTEST_CURRENT_TEST"


def _environ() -> dict[bytes, bytes]:
    """The variables undecoded: this is taken twice for every case."""
    raw = getattr(os.environb, "_data", None)
    return dict(raw) if isinstance(raw, dict) else dict(os.environb)


def _default_device(torch: Any) -> Any:
    """torch's default device. On 2.4 to 2.9 it cannot be read once it was set to None: that is taken back, and it is unset again."""
    get = getattr(torch, "get_default_device", None)
    if get is None:
        return None
    try:
        return get()
    except AttributeError:
        del torch._GLOBAL_DEVICE_CONTEXT.device_context
        return get()
