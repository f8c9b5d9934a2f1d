"""Hooks of compiled modules, registered before and after the first call."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Two(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 3)`."""
        result: Tensor = self.second(self.first(x).relu())
        return result


def _triple(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output * 3


HOOKS: dict[str, Code] = {
    "forward": lambda module: module.first.register_forward_hook(_triple),
    "forward_pre": lambda module: module.first.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3,)),
    "forward_of_whole": lambda module: module.register_forward_hook(_triple),
    "backward": lambda module: module.first.register_full_backward_hook(lambda module, given, got: (given[0] * 3,)),
    "backward_pre": lambda module: module.first.register_full_backward_pre_hook(lambda module, got: (got[0] * 3,)),
}


@pytest.mark.parametrize("form", HOOKS)
@catches(replays_first_program, compiled_by=compiling)
def test_late_hook_is_seen(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A hook registered after the first compiled call runs in the second.

    pytorch/pytorch#117758, pytorch/pytorch#115750, pytorch/pytorch#117265. Seen on no release; of the whole since 2.1.
    """
    x = uniform((2, 3)).to(device).requires_grad_()
    inputs = {"before": call(x), "after": call(x, before=HOOKS[form])}
    check_compiled(fill(Two()).to(device), inputs, observe, compiled_by=compiled_by, backend="aot_eager", backward=True)


def reset_after(register: Code) -> Code:
    """Throw away what was compiled."""

    def change(module: nn.Module) -> None:
        register(module)
        torch._dynamo.reset()

    return change


def registers_elsewhere(register: Code) -> Code:
    """On a copy."""
    return lambda module: register(copy.deepcopy(module))


@pytest.mark.parametrize("form", HOOKS)
@catches(registers_elsewhere, change=reset_after)
def test_late_hook_is_seen_after_reset(change: Code, form: str, device: torch.device) -> None:
    """A hook registered after the first compiled call runs in the second when `torch._dynamo.reset()` came between.

    pytorch/pytorch#117758. 2.0 to 2.15, also for what else is not seen; other ways, such as skip_nnmodule_hook_guards, changed.
    """
    module, x = fill(Two()).to(device), uniform((2, 3)).to(device).requires_grad_()
    expected = fill(Two()).to(device)
    HOOKS[form](expected)
    with compiling(module, "aot_eager") as (compiled, _):
        compiled(x)
        change(HOOKS[form])(module)
        gradients = [torch.autograd.grad(run(x).pow(2).sum(), x)[0] for run in (expected, compiled)]
        assert torch.allclose(compiled(x), expected(x))
    assert torch.allclose(*gradients)


@contextmanager
def loses_hooks(code: Code, **options: Any) -> Any:
    """A copy made of parameters and buffers alone."""
    bare = copy.deepcopy(code)
    for part in bare.modules():  # type: ignore[attr-defined]
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(part, name).clear()
    yield bare, Report()


@pytest.mark.parametrize("form", HOOKS)
@catches(loses_hooks, compiled_by=compiling)
def test_early_hook_runs(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A hook registered before the first compiled call runs in each, and answers and gradients are eager's.

    pytorch/pytorch#91665, pytorch/pytorch#98371. 2.0 to 2.15; a hook of the whole that was compiled since 2.1.
    """
    module = fill(Two()).to(device)
    HOOKS[form](module)
    x = uniform((2, 3)).to(device)
    seen = []
    for run_by in (None, compiled_by):
        given = x.clone().requires_grad_()
        with run_by(module, backend="aot_eager") if run_by is not None else contextlib.nullcontext((module, None)) as (run, _):
            result = run(given)
            seen += [result, *torch.autograd.grad(result.pow(2).sum(), given)]
    assert torch.allclose(seen[0], seen[2])
    assert torch.allclose(seen[1], seen[3])
