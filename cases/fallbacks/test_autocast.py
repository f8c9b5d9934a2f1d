"""What autocast does in silence: nothing, where it cannot; stale weights and lost gradients, where it caches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import autocast, autocast_dtype
from conformance.incell import Twin, catches, dtypes, host, values
from conformance.instruments.weights import uniform


def cast_or_refuse(device: torch.device, dtype: torch.dtype) -> Any:
    """The guard."""
    return autocast(device, dtype)


def goes_on_without(device: torch.device, dtype: torch.dtype) -> Any:
    """What is not there is left out: the run is float32, and nobody is told."""
    return nullcontext()


@dtypes("bfloat16", "float16")
@catches(goes_on_without, context=cast_or_refuse)
def test_autocast_casts_or_refuses(context: Callable[..., Any], dtype: torch.dtype, device: torch.device, observe: Any) -> None:
    """Under autocast a linear layer answers in the dtype asked for, or the block is refused with a RuntimeError.

    Observed here: torch warns and disables for float16 on the CPU until 2.1, and for CUDA without a GPU. 1.13 to 2.15.
    """
    layer = nn.Linear(4, 4).to(device)
    try:
        block = context(device, dtype)
    except RuntimeError as refusal:
        observe("refused", str(refusal).split(" here")[0][:40])
        return
    with block:
        assert layer(torch.ones(2, 4, device=device)).dtype == dtype


def ask_the_device() -> torch.dtype | None:
    """The guard asks for the CPU."""
    return autocast_dtype("cpu")


def asks_about_cuda() -> torch.dtype | None:
    """The question without an argument is about CUDA."""
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def reads_the_setting() -> torch.dtype | None:
    """The dtype that autocast would use, on or off."""
    return torch.get_autocast_cpu_dtype()


@host
@catches(asks_about_cuda, reads_the_setting, ask=ask_the_device)
def test_autocast_state_of_the_cpu(ask: Callable[[], torch.dtype | None]) -> None:
    """Code under the CPU's autocast sees its dtype, and None before, after, and where it is switched off inside.

    Observed here: `torch.is_autocast_enabled()` speaks of CUDA alone, 1.13 to 2.15; it takes a device since 2.4.
    """
    assert ask() is None
    with autocast("cpu", torch.bfloat16):
        assert ask() == torch.bfloat16
        with autocast("cpu", enabled=False):
            assert ask() is None
        assert ask() == torch.bfloat16
    assert ask() is None


def switch_off_and_cast(device: torch.device, layer: nn.Linear, x: Tensor) -> Tensor:
    """Off, and the input brought back."""
    with autocast(device, enabled=False):
        return layer(x.float())


def casts_the_input_alone(device: torch.device, layer: nn.Linear, x: Tensor) -> Tensor:
    """A cast under autocast is undone by the next layer."""
    return layer(x.float())


@catches(casts_the_input_alone, run=switch_off_and_cast)
def test_fragile_part_stays_in_float32(run: Callable[..., Tensor], device: torch.device) -> None:
    """A part of a model that must run in float32 does, inside a block of autocast.

    torch documentation of autocast. 1.13 to 2.15.
    """
    if device.type == "meta":
        pytest.skip("autocast knows no meta device")
    with autocast(device, torch.bfloat16):
        assert run(device, nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device).bfloat16()).dtype == torch.float32


def validate_then_train(context: Callable[[], Any], layer: nn.Linear, x: Tensor) -> Tensor:
    """A pass without gradients, and one with, in one block."""
    with context():
        with torch.no_grad():
            layer(x)
        return layer(x)


def casts_for_good(context: Callable[[], Any], layer: nn.Linear, x: Tensor) -> Tensor:
    """Weights cast once, when no gradient was wanted."""
    with torch.no_grad():
        weight, bias = layer.weight.bfloat16(), layer.bias.bfloat16()
    return nn.functional.linear(x.bfloat16(), weight, bias)


def _check_gradients_survive(run: Callable[..., Tensor], context: Callable[[], Any], device: torch.device) -> None:
    layer = nn.Linear(4, 4).to(device)
    out = run(context, layer, torch.ones(2, 4, device=device))
    assert out.requires_grad
    out.float().sum().backward()
    assert layer.weight.grad is not None


@values
@catches(casts_for_good, run=validate_then_train)
def test_gradients_after_no_grad(run: Callable[..., Tensor], device: torch.device) -> None:
    """Weights get gradients in a block of autocast that used them under `no_grad` first.

    pytorch/pytorch#112583, pytorch/pytorch#158232. The guard switches the cache off where it loses them. 1.13 to 2.15.
    """
    _check_gradients_survive(run, lambda: autocast(device, torch.bfloat16), device)


@values
@catches(casts_for_good, run=validate_then_train)
def test_gradients_after_no_grad_native(run: Callable[..., Tensor], device: torch.device) -> None:
    """`torch.autocast` keeps the gradients of weights that were used under `no_grad` first.

    pytorch/pytorch#112583, fixed by pytorch/pytorch#165068. Lost from 1.13 to 2.10, kept since 2.11, observed here.
    """
    _check_gradients_survive(run, lambda: torch.autocast(device.type, dtype=torch.bfloat16), device)


def cache_nothing(device: torch.device) -> Any:
    """Cast weights each time."""
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


def caches(device: torch.device) -> Any:
    """The default."""
    return torch.autocast(device.type, dtype=torch.bfloat16)


@values
@catches(caches, context=cache_nothing)
def test_weights_written_inside_a_block(context: Callable[..., Any], device: torch.device) -> None:
    """Weights that are written inside a block of autocast are used as written, with its cache off.

    NVIDIA/apex#132 (the hazard): observed here, with the cache the layer answers by its old weights, 1.13 to 2.15.
    """
    layer, x = nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device)
    with context(device):
        layer(x)
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.zero_()
        assert layer(x).abs().max().item() == 0.0


def switch_off(kind: str) -> Any:
    """The guard, off."""
    return autocast(kind, enabled=False)


def asks_torch(kind: str) -> Any:
    """torch's own, off: it minds the device all the same."""
    return torch.autocast(kind, enabled=False)


@host
@catches(Twin(asks_torch, "raises"), off=switch_off)
def test_autocast_off_everywhere(off: Callable[[str], Any]) -> None:
    """Autocast that is off is no error on any device, and changes no number.

    Observed here: torch refuses meta on every release, mps until 2.4, xpu until 2.2.
    """
    layer, x = nn.Linear(4, 4), uniform((2, 4), "x")
    for kind in ("cpu", "cuda", "mps", "xpu", "meta"):
        with off(kind):
            assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
