"""Recompilation: what makes a frame compile again and again, how to write it so that it does not, and what happens at the limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class CountsInBuffer(nn.Module):
    """Counts its calls in a buffer."""

    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 1)`."""
        self.step += 1
        result: Tensor = self.layer(x)
        return result


class CountsInInt(CountsInBuffer):
    """Counts its calls in a Python number."""

    def __init__(self) -> None:
        super().__init__()
        del self.step
        self.step = 0  # type: ignore[assignment]


@catches(CountsInInt, build=CountsInBuffer)
def test_counter_in_buffer_compiles_once(build: Code, device: torch.device, observe: Observe) -> None:
    """A module that counts its calls in a buffer compiles once for 10 calls, and counts to 10.

    pytorch/pytorch#128319, pytorch/pytorch#154867. With a Python number: 4 graphs on 2.1 to 2.4, 2 on 2.5 to 2.7, 8 (the limit)
    since 2.8.
    """
    module, x = build().to(device), torch.ones(1, 1, device=device)
    with compiling(module) as (compiled, report):
        for _ in range(10):
            compiled(x)
    observe("graphs", report.graphs, better="lower")
    assert device.type == "meta" or int(module.step) == 10
    assert report.graphs == 1


class CountsOnce(CountsInInt):
    """The count of the first call is all that a graph knows."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 1)`."""
        self.step = 1  # type: ignore[assignment]
        result: Tensor = self.layer(x)
        return result


@catches(CountsOnce, build=CountsInInt)
def test_counter_in_int_counts(build: Code, device: torch.device, observe: Observe) -> None:
    """A Python counter in a compiled forward still counts every call; how often it compiles is observed.

    pytorch/pytorch#128319. 2.0 to 2.15; the graphs: 4, then 2, then 8.
    """
    module, x = build().to(device), torch.ones(1, 1, device=device)
    with compiling(module) as (compiled, report):
        for _ in range(10):
            compiled(x)
    observe("graphs", report.graphs, better="lower")
    observe("recompiles_told", "; ".join(dict.fromkeys(report.recompiles)) or "none")
    assert module.step == 10


def scale(x: Tensor, *, factor: Any = 2.0, mask: Tensor | None = None) -> Tensor:
    """Keyword arguments with defaults; a number may be written in words."""
    x = x * (float(factor) if isinstance(factor, str) else factor)
    return x if mask is None else x + mask


def give_as_tensor(value: float, device: torch.device) -> Any:
    """A number in a tensor of no dimension."""
    return torch.tensor(value, device=device)


def gives_as_text(value: float, device: torch.device) -> Any:
    """A text, as options come: no two of them share a graph."""
    return str(value)


def _factors(give: Code, device: torch.device) -> dict[str, Any]:
    x = uniform((2,)).to(device)
    return {f"factor{value}": call(x, factor=give(value, device)) for value in (2.0, 3.0, 4.0, 5.0)}


@values
@catches(gives_as_text, give=give_as_tensor)
def test_changing_number_as_tensor(give: Code, device: torch.device, observe: Observe) -> None:
    """A number that changes at each call, a learning rate, a temperature, compiles once when it is given as a tensor.

    pytorch/pytorch#120934, pytorch/pytorch#133898. 2.0 to 2.15.
    """
    with compiling(scale) as (compiled, report):
        for name, planned in _factors(give, device).items():
            x = planned.arguments[0]
            assert torch.allclose(compiled(x, **planned.named), x * float(name[6:])), name
    observe("graphs", report.graphs, better="lower")
    assert report.graphs == 1


def give_as_float(value: float, device: torch.device) -> Any:
    """A Python float."""
    return value


@values
@catches(gives_as_text, give=give_as_float)
def test_changing_float_settles(give: Code, device: torch.device, observe: Observe) -> None:
    """A float argument that changes at each call settles: at most 2 graphs for 4 values.

    pytorch/pytorch#128319. Since 2.6; until 2.5 a graph for each value.
    """
    report = check_compiled(scale, _factors(give, device), observe)
    assert report.graphs <= 2


def call_by_any_means(x: Tensor, other: Tensor) -> dict[str, Any]:
    """The same values left out, given by keyword, given as None; then a mask, and another."""
    return {
        "left_out": call(x),
        "default_given": call(x, factor=2.0),
        "none_given": call(x, mask=None),
        "mask": call(x, mask=other),
        "other_mask": call(x, mask=other * 2),
    }


def calls_with_new_options(x: Tensor, other: Tensor) -> dict[str, Any]:
    """A value of its own at each call."""
    return {f"mask{i}": call(x, mask=other, factor=["2", "2.0", "3", "4", "5"][i]) for i in range(5)}


@values
@catches(calls_with_new_options, make=call_by_any_means)
def test_defaults_are_shared(make: Code, device: torch.device, observe: Observe) -> None:
    """An argument left out, given as its default, or given as None is one graph; a mask is a second one, and stays it.

    pytorch/pytorch#128319. 2.0 to 2.15.
    """
    report = check_compiled(scale, make(uniform((2, 2)).to(device), uniform((2, 2), "mask").to(device)), observe)
    assert report.after == [1, 1, 1, 2, 2]


class Layer(nn.Module):
    """A layer that knows its index."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.index = index

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 2)`."""
        result: Tensor = self.linear(x)
        return result


class ReadsItsIndex(Layer):
    """A layer whose computation reads its index: a frame for each layer."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 2)`."""
        result: Tensor = self.linear(x) if self.index < 3 else self.linear(x * self.index)
        return result


def _through_layers(build: Code, device: torch.device) -> Any:
    layers = [build(index).to(device) for index in range(6)]
    with compiling(lambda x, layer: layer(x)) as (compiled, report):
        for layer in layers:
            compiled(torch.ones(1, 2, device=device), layer)
    return report


@catches(ReadsItsIndex, build=Layer)
def test_layers_share_a_graph(build: Code, device: torch.device, observe: Observe) -> None:
    """Layers of one class, compiled one by one, share one graph as long as nothing that differs is read.

    pytorch/pytorch#130776, pytorch/pytorch#128319. Since 2.5; until 2.4 a graph for each layer.
    """
    report = _through_layers(build, device)
    observe("graphs", report.graphs, better="lower")
    observe("recompiles_told", "; ".join(dict.fromkeys(report.recompiles)) or "none")
    assert report.graphs == 1


def make_each_time(device: torch.device) -> Code:
    """A new module for each call, all alike; kept, so that none takes the address of another."""
    return lambda index: nn.Linear(2, 2, device=device)


def makes_other_sizes(device: torch.device) -> Code:
    """A new module for each call, of a size of its own."""
    return lambda index: nn.Linear(2, 2 + index, device=device)


@catches(makes_other_sizes, make=make_each_time)
def test_fresh_modules_share_a_graph(make: Code, device: torch.device, observe: Observe) -> None:
    """20 modules made anew, one for each call, share one graph.

    pytorch/pytorch#130776. Since 2.5; until 2.4 a graph for each.
    """
    modules = [make(device)(index) for index in range(20)]
    with compiling(lambda x, module: module(x)) as (compiled, report):
        for module in modules:
            compiled(torch.ones(1, 2, device=device), module)
    observe("graphs", report.graphs, better="lower")
    assert report.graphs == 1
