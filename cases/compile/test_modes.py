"""Modes of the module and of the process, changed after compilation or around a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Network(nn.Module):
    """What modes decide about."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 4)`."""
        result: Tensor = self.norm(self.linear(x)) + self.drop(x) + torch.ones(4, device=x.device)
        return result


def _default_dtype(_: Any) -> None:
    torch.set_default_dtype(torch.bfloat16)


#: Name -> what is done before the second call.
MODES: dict[str, Code] = {
    "eval": lambda module: module.eval(),
    "part_in_eval": lambda module: module.drop.eval(),
    "cast": lambda module: module.to(torch.bfloat16),
    "frozen": lambda module: module.requires_grad_(False),
    "default_dtype": _default_dtype,
    "grad_mode": lambda _: torch.set_grad_enabled(False),
}


def _modes_back() -> None:
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)


@pytest.mark.parametrize("form", MODES)
@catches(replays_first_program, compiled_by=compiling)
def test_mode_is_seen(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """eval(), a cast, frozen weights, the default dtype or the grad mode, changed after compilation, change the next answer.

    pytorch/pytorch#105653, pytorch/pytorch#109458, pytorch/pytorch#184405. 2.0 to 2.15; the default dtype since 2.2.
    """
    x = uniform((3, 4)).to(device)
    module = _reading_default_dtype if form == "default_dtype" else Network().to(device)
    after = call(x.bfloat16() if form == "cast" else x, before=MODES[form])
    try:
        check_compiled(module, {"before": call(x), "after": after}, observe, compiled_by=compiled_by, fresh=_modes_back)
    finally:
        _modes_back()


def _reading_default_dtype(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * torch.finfo(torch.get_default_dtype()).bits, torch.ones(2, device=x.device)


#: Name -> what stands around the second call.
AROUND: dict[str, Code] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@contextlib.contextmanager
def ignores_context(code: Code) -> Any:
    """What was recorded outside is run as it was outside."""

    def run(*arguments: Any) -> Any:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
            return code(*arguments)

    yield run, None


@pytest.mark.parametrize("form", AROUND)
@catches(ignores_context, compiled_by=compiling)
def test_context_around_call_is_seen(compiled_by: Code, form: str, device: torch.device) -> None:
    """A compiled module called inside no_grad, inference_mode or autocast answers as eager code does there, and outside again.

    pytorch/pytorch#100241, pytorch/pytorch#135892. 2.0 to 2.15.
    """
    if form == "autocast" and device.type != "cpu":
        pytest.skip("the CPU's autocast")
    module, x = nn.Linear(4, 4).to(device), uniform((3, 4)).to(device)
    with compiled_by(module) as (compiled, _):
        for around in (contextlib.nullcontext, AROUND[form], contextlib.nullcontext):
            with around():
                expected, got = module(x), compiled(x)
            seen = [(t.dtype, t.requires_grad, t.is_inference()) for t in (expected, got)]
            assert seen[0] == seen[1]
            assert torch.allclose(expected, got)
