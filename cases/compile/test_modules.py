"""A compiled module as an object: its modes, its flags, its methods, compiled code inside compiled code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.guards.compiling import uncompiled
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.bits import same_bits
from conformance.instruments.compilation import compiling
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Model(nn.Module):
    """A layer, dropout, and a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 3)`."""
        result: Tensor = self.drop(self.layer(x))
        return result

    def generate(self, x: Tensor, steps: int = 2) -> Tensor:
        """Several forwards."""
        for _ in range(steps):
            x = self(x)
        return x


def _model(device: torch.device) -> Model:
    model = fill(Model()).to(device).eval()
    assert isinstance(model, Model)
    return model


def switch_compiled(compiled: nn.Module, model: nn.Module) -> nn.Module:
    """Through the wrapper."""
    return compiled.eval()


def switches_a_copy(compiled: nn.Module, model: nn.Module) -> nn.Module:
    """On something else."""
    return copy.deepcopy(model).eval()


@catches(switches_a_copy, switch=switch_compiled)
def test_mode_passes_through_wrapper(switch: Code, device: torch.device, observe: Observe) -> None:
    """`.eval()` on the compiled module switches the module inside and stops its dropout, whatever `.training` says of the wrapper.

    pytorch/pytorch#132986, pytorch/pytorch#122414: the wrapper's own flag stays behind, observed as `wrapper_training`.
    """
    model, x = _model(device).train(), torch.ones(64, 3, device=device)
    with compiling(model) as (compiled, _):
        compiled(x)
        switch(compiled, model)
        observe("wrapper_training", bool(compiled.training))  # type: ignore[attr-defined]
        assert not model.training
        assert same_bits(compiled(x), model.layer(x))


def flag_of_inner(compiled: Any) -> bool:
    """Of the module inside."""
    return bool(uncompiled(compiled).training)


def flag_of_other(compiled: Any) -> bool:
    """A new module's."""
    return nn.Module().training


@catches(flag_of_other, read=flag_of_inner)
def test_flag_of_inner_is_true(read: Code, device: torch.device) -> None:
    """A model that was in eval mode when it was compiled is in eval mode by the flag of the module inside.

    pytorch/pytorch#122414. 2.0 to 2.15.
    """
    with compiling(_model(device)) as (compiled, _):
        assert read(compiled) is False


def flag_of_wrapper(compiled: Any) -> bool:
    """What the wrapper says."""
    return bool(compiled.training)


@catches(flag_of_other, read=flag_of_wrapper)
def test_flag_of_wrapper_is_true(read: Code, device: torch.device) -> None:
    """A model that was in eval mode when it was compiled says so by the wrapper's own flag.

    pytorch/pytorch#122414, JIA-Lab-research/LongLoRA#127. Since 2.5; until it was passed on, a new wrapper says that it trains.
    """
    with compiling(_model(device)) as (compiled, _):
        assert read(compiled) is False


def compile_forward(model: Model) -> Model:
    """Put compiled code in the place of the forward."""
    model.forward = torch.compile(model.forward, backend="eager")  # type: ignore[method-assign]
    return model


def loses_methods(model: Model) -> Any:
    """A function has no methods."""
    return nn.Sequential(model)


@catches(Twin(loses_methods, "raises"), compiled_by=compile_forward)
def test_methods_run_compiled_forward(compiled_by: Code, device: torch.device) -> None:
    """A model whose forward was replaced by compiled code keeps its names and class, and its methods run the compiled forward.

    meta-pytorch/tnt#441. 2.0 to 2.15.
    """
    model, x = _model(device), uniform((2, 3)).to(device)
    expected = model.generate(x)
    compiled = compiled_by(model)
    assert torch.allclose(compiled.generate(x), expected)
    assert list(compiled.state_dict()) == list(Model().state_dict())


def compile_in_place(model: Model) -> nn.Module:
    """`module.compile()`."""
    model.compile(backend="eager")
    return model


def wraps(model: Model) -> nn.Module:
    """The wrapper, whose names have a prefix."""
    wrapped: nn.Module = torch.compile(model, backend="eager")  # type: ignore[assignment]
    return wrapped


@requires("torch.nn.Module.compile")
@catches(wraps, compiled_by=compile_in_place)
def test_compile_in_place_keeps_names(compiled_by: Code, device: torch.device) -> None:
    """`module.compile()` keeps names, class and identity, and the answers.

    meta-pytorch/tnt#441. Since 2.2.
    """
    model, x = _model(device), uniform((2, 3)).to(device)
    expected = model(x)
    compiled = compiled_by(model)
    assert torch.allclose(compiled(x), expected)
    assert list(compiled.state_dict()) == list(Model().state_dict())
    assert isinstance(compiled, Model)


def compile_twice(code: Code) -> Code:
    """Compile what is compiled."""
    return torch.compile(torch.compile(code, backend="eager"), backend="eager")


def counts_twice(code: Code) -> Code:
    """Apply it twice."""
    return lambda x: code(code(x))


@catches(counts_twice, compiled_by=compile_twice)
def test_compiled_inside_compiled(compiled_by: Code, device: torch.device) -> None:
    """Compiled code that is compiled again, or called by compiled code, answers once and right.

    Own observation. 2.0 to 2.15.
    """
    x = uniform((3,)).to(device)
    inner = compiled_by(lambda x: x * 2 + 1)
    assert same_bits(inner(x), x * 2 + 1)
    with compiling(lambda x: inner(x) * 3) as (outer, _):
        assert torch.allclose(outer(x), (x * 2 + 1) * 3)
