"""Names of mixed precision that moved: scalers, autocast, and the decorators of autograd functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import autocast, custom_fwd, grad_scaler
from conformance.incell import Twin, catches, host, values


def decorators_from_guards() -> tuple[Any, Callable[..., Any]]:
    """A scaler that is off, and the decorator of a forward."""
    return grad_scaler("cpu", enabled=False), custom_fwd("cpu")


def catches_the_wrong_exception() -> tuple[Any, Callable[..., Any]]:
    """A missing attribute is no ImportError."""
    try:
        return torch.amp.GradScaler("cpu", enabled=False), torch.amp.custom_fwd(device_type="cpu")
    except ImportError:
        return torch.cuda.amp.GradScaler(enabled=False), torch.cuda.amp.custom_fwd


class ScalesAnyway:
    """A stand-in for the missing scaler: `scale` multiplies, and nothing divides."""

    def scale(self, loss: Tensor) -> Tensor:
        """Times 65536, as a scaler that is on begins."""
        return loss * 65536.0


def stands_in_for_the_scaler() -> tuple[Any, Callable[..., Any]]:
    """A scaler that is never off."""
    return ScalesAnyway(), custom_fwd("cpu")


def _check_gradient(choose: Callable[[], tuple[Any, Callable[..., Any]]]) -> None:
    scaler, decorate = choose()

    class Square(torch.autograd.Function):
        @staticmethod
        @decorate
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return 2 * ctx.saved_tensors[0] * gradient

    x = torch.tensor(3.0, requires_grad=True)
    scaler.scale(Square.apply(x)).backward()
    assert x.grad is not None
    assert x.grad.item() == 6.0


@host
@catches(stands_in_for_the_scaler, choose=decorators_from_guards)
def test_amp_names(choose: Callable[[], tuple[Any, Callable[..., Any]]]) -> None:
    """A scaler that is off and a decorated function give the plain gradient, by whichever name this release has them.

    explosion/thinc#615 (the pattern). GradScaler moved in 2.3, custom_fwd in 2.4. 1.13 to 2.15.
    """
    _check_gradient(choose)


@host
def test_amp_names_by_import_error_native() -> None:
    """`except ImportError` around attributes finds a scaler and a decorator.

    explosion/thinc#615 (the pattern): AttributeError goes through it from 1.13 to 2.3; from 2.4 the new names are there.
    """
    _check_gradient(catches_the_wrong_exception)


SPELLINGS: dict[str, Callable[[], Any]] = {
    "amp.GradScaler": lambda: torch.amp.GradScaler("cuda", enabled=False),
    "cuda.amp.GradScaler": lambda: torch.cuda.amp.GradScaler(enabled=False),
    "cuda.amp.autocast": lambda: torch.cuda.amp.autocast(enabled=False),
    "cpu.amp.autocast": lambda: torch.cpu.amp.autocast(enabled=False),
    "autocast": lambda: torch.autocast("cuda", enabled=False),
}


def _quietly(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()


@host
@pytest.mark.parametrize("spelling", list(SPELLINGS))
def test_amp_spelling_native(spelling: str) -> None:
    """Each name under `torch` is there, and makes what it names without a warning.

    karpathy/nanoGPT#635, karpathy/nanoGPT#709, pytorch/tutorials#3331. `amp.GradScaler` is missing until 2.2; names under
    `cuda.amp` and `cpu.amp` warn since 2.4; `autocast` is right from 1.13 to 2.15.
    """
    _quietly(SPELLINGS[spelling])


def make_by_guards(device: str) -> tuple[Any, Any]:
    """Scaler and autocast."""
    return grad_scaler(device), autocast(device, enabled=False)


def warns_of_what_it_lacks(device: str) -> tuple[Any, Any]:
    """A warning in place of the newer name: half of all logs."""
    warnings.warn(f"no scaler for {device}", UserWarning, stacklevel=2)
    return grad_scaler(device), autocast(device, enabled=False)


@host
@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps", "meta"])
@catches(Twin(warns_of_what_it_lacks, "raises"), make=make_by_guards)
def test_guards_make_quietly(make: Callable[[str], tuple[Any, Any]], kind: str, observe: Callable[..., None]) -> None:
    """Scaler and switched-off autocast for any device are made without a warning, be the device there or not.

    karpathy/nanoGPT#635. Observed here: `torch.autocast` refuses mps until 2.4 and meta everywhere, even when off; 2.9 leaves a
    CUDA scaler on without CUDA. 1.13 to 2.15.
    """
    scaler, context = _quietly(lambda: make(kind))
    observe("scaler_on", scaler.is_enabled())
    with context:
        assert kind != "cuda" or scaler.is_enabled() == torch.cuda.is_available()


def step_through_scaler(scaler: Any, optimizer: torch.optim.Optimizer) -> None:
    """The scaler looks at the gradients and steps, or does not."""
    scaler.step(optimizer)
    scaler.update()


def steps_itself(scaler: Any, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer steps on what is there."""
    optimizer.step()
    scaler.update()


def _scaler(device: torch.device) -> Any:
    scaler = grad_scaler(device, init_scale=4.0)
    if not scaler.is_enabled():
        pytest.skip(f"this torch has no gradient scaler on {device.type}")
    return scaler


@values
@catches(Twin(steps_itself, "raises"), step=step_through_scaler)
def test_overflow_skips_the_step(step: Callable[..., None], device: torch.device) -> None:
    """A step whose gradients are infinite is skipped, and the scale is halved.

    torch documentation of GradScaler. On the CPU since 2.3.
    """
    scaler, weight = _scaler(device), nn.Parameter(torch.ones(2, device=device))
    scaler.scale((weight * float("inf")).sum()).backward()
    step(scaler, torch.optim.SGD([weight], lr=0.5))
    assert weight.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == 2.0


def unscale_then_clip(scaler: Any, optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> None:
    """Divide first."""
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([weight], 10.0)
    scaler.step(optimizer)


def clips_what_is_scaled(scaler: Any, optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> None:
    """The norm of scaled gradients is above any bound."""
    torch.nn.utils.clip_grad_norm_([weight], 10.0)
    scaler.step(optimizer)


@values
@catches(clips_what_is_scaled, step=unscale_then_clip)
def test_clip_after_unscaling(step: Callable[..., None], device: torch.device) -> None:
    """Gradients below the bound are not clipped, whatever they were scaled by.

    torch documentation, "Working with Unscaled Gradients". On the CPU since 2.3.
    """
    scaler, weight = _scaler(device), nn.Parameter(torch.zeros(1, device=device))
    scaler.scale((weight * 8.0).sum()).backward()
    step(scaler, torch.optim.SGD([weight], lr=0.5), weight)
    assert weight.item() == pytest.approx(-4.0)
