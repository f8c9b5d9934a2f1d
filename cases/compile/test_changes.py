"""What is changed from outside between two calls of compiled code: does the second call see it, or answer from the first?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import Call, call, check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Scaling(nn.Module):
    """Holds one of each kind of thing that a forward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.off = False
        self.count, self.factor, self.mode = 2, 2.0, "twice"
        self.mask: Tensor | None = None
        self.factors = [2.0]
        self.table = {"factor": 2.0}
        self.config = SimpleNamespace(factor=2.0)
        self.layer: nn.Module = nn.Identity()
        self.gain = nn.Parameter(torch.tensor([2.0]))
        self.blocks = nn.ModuleList([nn.Identity()])
        self.register_buffer("offset", torch.tensor([1.0]))

    def activation(self, x: Tensor) -> Tensor:
        """A method, which an instance may shadow."""
        return x * 2


#: Name -> the forward that reads, and what is done to the module before the second call.
OF_MODULES: dict[str, tuple[Code, Code]] = {
    "bool": (lambda m, x: x if m.off else x * 2, lambda m: setattr(m, "off", True)),
    "int": (lambda m, x: x * m.count, lambda m: setattr(m, "count", 5)),
    "float": (lambda m, x: x * m.factor, lambda m: setattr(m, "factor", 5.0)),
    "text": (lambda m, x: x * 2 if m.mode == "twice" else x, lambda m: setattr(m, "mode", "once")),
    "none": (lambda m, x: x if m.mask is None else x * m.mask, lambda m: setattr(m, "mask", torch.full_like(m.offset, 3.0))),
    "list": (lambda m, x: x * sum(m.factors), lambda m: m.factors.append(3.0)),
    "dict": (lambda m, x: x * m.table["factor"], lambda m: m.table.update(factor=5.0)),
    "config": (lambda m, x: x * m.config.factor, lambda m: setattr(m.config, "factor", 5.0)),
    "module": (lambda m, x: m.layer(x), lambda m: setattr(m, "layer", nn.Sigmoid())),
    "module_list": (lambda m, x: m.blocks[0](x) * len(m.blocks), lambda m: m.blocks.append(nn.Identity())),
    "parameter": (lambda m, x: x * m.gain, lambda m: setattr(m, "gain", nn.Parameter(torch.full_like(m.gain, 5.0)))),
    "buffer": (lambda m, x: x + m.offset, lambda m: setattr(m, "offset", torch.full_like(m.offset, 5.0))),
    "method": (lambda m, x: m.activation(x), lambda m: setattr(m, "activation", torch.neg)),
}


class Reading(Scaling):
    """The module with one of these forwards."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        result: Tensor = OF_MODULES[self.form][0](self, x)
        return result


@pytest.mark.parametrize("form", OF_MODULES)
@catches(replays_first_program, compiled_by=compiling)
def test_module_change_is_seen(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A module's attribute changed between two calls, of any kind, changes the second answer as in eager code.

    pytorch/pytorch#98928, pytorch/pytorch#124717, pytorch/pytorch#115774. Since 2.4 for most kinds; until 2.3 dynamo put no guard on
    what a module holds, and answered from the first call in silence.
    """
    module = Reading(form).to(device)
    check_compiled(module, _two_calls(OF_MODULES[form][1], device), observe, compiled_by=compiled_by)


def _two_calls(change: Code, device: torch.device) -> Mapping[str, Call]:
    x = uniform((3,)).to(device)
    return {"before": call(x), "after": call(x, before=change)}


FACTOR = 2.0

FACTORS = [2.0]

HELD = torch.tensor(2.0)


class Shared:
    """A class that is used as a namespace."""

    factor = 2.0


def double(x: Tensor) -> Tensor:
    """The helper, as it is at first."""
    return x * 2


def with_default(x: Tensor, factor: float = 2.0) -> Tensor:
    """A default value is kept by the function."""
    return x * factor


def _make_closure() -> tuple[Code, Code]:
    factor = 2.0

    def scale(x: Tensor) -> Tensor:
        return x * factor

    def change(_: Any = None) -> None:
        nonlocal factor
        factor = 5.0 if _ is not None else 2.0

    return scale, change


_SCALE, _CHANGE_CELL = _make_closure()


def _set(name: str, value: Any) -> Code:
    return lambda _=None: globals().__setitem__(name, value)


def _set_default(value: float) -> Code:
    return lambda _=None: setattr(with_default, "__defaults__", (value,))


def _set_class(value: float) -> Code:
    return lambda _=None: setattr(Shared, "factor", value)


def _set_variable(value: str) -> Code:
    return lambda _=None: os.environ.__setitem__("CONFORMANCE_FACTOR", value)


#: Name -> the function that reads, what puts the old value there, and what puts the new one.
OF_GLOBALS: dict[str, tuple[Code, Code, Code]] = {
    "number": (lambda x: x * FACTOR, _set("FACTOR", 2.0), _set("FACTOR", 5.0)),
    "list": (lambda x: x * sum(FACTORS), lambda: FACTORS.__setitem__(slice(None), [2.0]), lambda _: FACTORS.append(3.0)),
    "tensor": (lambda x: x * HELD, _set("HELD", HELD), _set("HELD", torch.tensor(5.0))),
    "function": (lambda x: double(x), _set("double", double), _set("double", torch.neg)),
    "class_attribute": (lambda x: x * Shared.factor, _set_class(2.0), _set_class(5.0)),
    "default": (lambda x: with_default(x), _set_default(2.0), _set_default(5.0)),
    "cell": (_SCALE, _CHANGE_CELL, lambda _: _CHANGE_CELL(True)),
    "variable": (lambda x: x * float(os.environ["CONFORMANCE_FACTOR"]), _set_variable("2"), _set_variable("5")),
    "getenv": (lambda x: x * float(os.getenv("CONFORMANCE_FACTOR", "1")), _set_variable("2"), _set_variable("5")),
}


@pytest.mark.parametrize("form", OF_GLOBALS)
@catches(replays_first_program, compiled_by=compiling)
def test_outer_change_is_seen(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """What a function reads from around it, a global, a class, a closure, a default, the environment, is read anew at each call.

    pytorch/pytorch#108898, pytorch/pytorch#176851 (class attributes), pytorch/pytorch#178401 (defaults), pytorch/pytorch#189027 (the
    environment, baked in silence since 2.9). Functions since 2.4; class attributes not on 2.4 to 2.11, defaults not on 2.0 and 2.9 to 2.11.
    """
    code, restore, change = OF_GLOBALS[form]
    try:
        check_compiled(code, _two_calls(change, device), observe, compiled_by=compiled_by, fresh=restore)
    finally:
        restore()


def read_outside(code: Code, x: Tensor) -> Tensor:
    """Read the environment in Python and pass the number in."""
    result: Tensor = code(x, float(os.environ["CONFORMANCE_FACTOR"]))
    return result


def reads_once(code: Code, x: Tensor) -> Tensor:
    """Keep what was read at import, as a constant of the module."""
    result: Tensor = code(x, 2.0)
    return result


@catches(reads_once, read=read_outside)
def test_environment_is_passed_in(read: Code, device: torch.device) -> None:
    """A variable of the environment that is read outside compiled code and passed in as a number is followed.

    pytorch/pytorch#189027. 2.0 to 2.15: the way that needs no guard on the environment.
    """
    x = uniform((3,)).to(device)
    with compiling(lambda x, factor: x * factor) as (compiled, _):
        for value in ("2", "5", "7"):
            _set_variable(value)()
            assert torch.equal(read(compiled, x).cpu(), x.cpu() * float(value))
