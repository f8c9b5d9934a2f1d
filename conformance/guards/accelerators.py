"""Which device there is, found by doing something on it."""

from __future__ import annotations

import importlib

import torch


def is_usable(device: torch.device | str) -> bool:
    """Whether one real op runs on `device` and comes back right. Names that parse, built-in backends and drivers prove nothing."""
    try:
        return bool((torch.ones(2, device=device) + 1).cpu().tolist() == [2.0, 2.0])
    except Exception:  # absent backends raise RuntimeError, AssertionError, NotImplementedError or ImportError
        return False


def working_accelerator() -> torch.device | None:
    """The accelerator that works here, None without one.

    `torch.accelerator` (2.6) names the device that the wheel was built for: `cuda` on a machine without a GPU, unless 2.7's
    `check_available=True` is given; on 2.6 it raises where there is none.
    """
    for kind in ("cuda", "xpu", "mps"):
        if is_usable(kind):
            return torch.device(kind)
    return None


def synchronize(device: torch.device | str) -> None:
    """Wait until `device` has done what it was given; nothing to wait for on the CPU and on meta."""
    kind = torch.device(device).type
    if kind == "xla":  # not in torch: torch-xla waits for its own device
        importlib.import_module("torch_xla.core.xla_model").mark_step(wait=True)
    elif kind not in ("cpu", "meta"):
        wait = getattr(getattr(torch, kind, None), "synchronize", None)
        if wait is None:
            raise RuntimeError(f"torch {torch.__version__} cannot wait for {kind}")
        wait()


def default_device() -> torch.device:
    """Where a factory without `device` puts its tensor now, on every release.

    `torch.get_default_device` came in 2.3, did not see a surrounding `with torch.device(...)` until 2.7
    (pytorch/pytorch#131328), and raises after `set_default_device(None)` on 2.3 to 2.9.
    """
    return torch.empty(0).device
