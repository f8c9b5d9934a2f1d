"""Mixed precision by names that exist, without a FutureWarning, on every release."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch


def autocast_dtype(device: torch.device | str) -> torch.dtype | None:
    """The dtype that autocast uses on `device` now, None where it is off.

    `torch.is_autocast_enabled()` without an argument speaks of CUDA alone, on every release; with one it came in 2.4.
    """
    kind = torch.device(device).type
    if hasattr(torch, "get_autocast_dtype"):
        try:
            return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        except RuntimeError:  # a device that autocast does not know
            return None
    probes = {
        "cpu": (torch.is_autocast_cpu_enabled, torch.get_autocast_cpu_dtype),
        "cuda": (torch.is_autocast_enabled, torch.get_autocast_gpu_dtype),
    }
    enabled, dtype = probes.get(kind, (lambda: False, lambda: None))
    return dtype() if enabled() else None


def autocast(device: torch.device | str, dtype: torch.dtype | None = None, enabled: bool = True) -> Any:
    """`torch.autocast` that does cast: RuntimeError where this release would warn and go on without. Off, it never raises.

    torch disables what it cannot do (float16 on the CPU until 2.1, CUDA without a GPU) with a warning, and refuses some
    devices (mps until 2.4) even with `enabled=False`. The cache of cast weights is off where weights that were cast first under
    `no_grad` lose their gradients (until 2.9 at least).
    """
    kind = torch.device(device).type
    if not enabled:
        try:
            return torch.autocast(kind, enabled=False)
        except (RuntimeError, AttributeError):
            return nullcontext()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autocast(kind, dtype=dtype):
            got = autocast_dtype(kind)
    if got is None or (dtype is not None and got != dtype):
        raise RuntimeError(f"torch {torch.__version__} does not autocast to {dtype or 'anything'} on {kind} here")
    return torch.autocast(kind, dtype=dtype, cache_enabled=_cache_keeps_gradients())


@functools.lru_cache(maxsize=1)
def _cache_keeps_gradients() -> bool:
    weight, x = torch.ones(1, 1, device="cpu", requires_grad=True), torch.ones(1, 1, device="cpu")
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            torch.mm(x, weight)
        return bool(torch.mm(x, weight).requires_grad)


def grad_scaler(device: torch.device | str = "cuda", enabled: bool = True, **options: Any) -> Any:
    """A gradient scaler by the name that this release has: `torch.amp.GradScaler` from 2.3, `torch.cuda.amp.GradScaler` before.

    It is off, as its `is_enabled()` says, where nothing could be scaled: on CUDA without a GPU (2.9 leaves it on there), and on
    other devices until 2.2.
    """
    kind = torch.device(device).type
    here = enabled and (kind != "cuda" or torch.cuda.is_available())
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        return scaler(kind, enabled=here, **options)
    return torch.cuda.amp.GradScaler(enabled=here and kind == "cuda", **options)


def custom_fwd(device: torch.device | str, cast_inputs: torch.dtype | None = None) -> Callable[..., Any]:
    """Decorator of an autograd function's forward: runs under the autocast around it, or on inputs cast to `cast_inputs` without any.

    `torch.amp.custom_fwd` from 2.4. Before, `torch.cuda.amp.custom_fwd` minds CUDA's autocast alone and ignores the CPU's.
    """
    kind = torch.device(device).type
    native = getattr(torch.amp, "custom_fwd", None)
    if native is not None:
        return functools.partial(native, device_type=kind, cast_inputs=cast_inputs)

    def decorate(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def run(ctx: Any, *arguments: Any) -> Any:
            ctx._autocast = dtype = autocast_dtype(kind)
            if cast_inputs is None or dtype is None:
                return forward(ctx, *arguments)
            ctx._autocast = None
            with autocast(kind, enabled=False):
                return forward(ctx, *(_cast(argument, cast_inputs) for argument in arguments))

        return run

    return decorate


def custom_bwd(device: torch.device | str) -> Callable[..., Any]:
    """Decorator of the backward beside `custom_fwd`: runs under the autocast that the forward ran under."""
    kind = torch.device(device).type
    native = getattr(torch.amp, "custom_bwd", None)
    if native is not None:
        return functools.partial(native, device_type=kind)

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def run(ctx: Any, *gradients: Any) -> Any:
            dtype = ctx._autocast
            with autocast(kind, enabled=False) if dtype is None else autocast(kind, dtype):
                return backward(ctx, *gradients)

        return run

    return decorate


def _cast(argument: Any, dtype: torch.dtype) -> Any:
    floating = isinstance(argument, torch.Tensor) and argument.is_floating_point() and argument.dtype != torch.float64
    return argument.to(dtype) if floating else argument
