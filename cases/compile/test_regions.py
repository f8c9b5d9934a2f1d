"""Regions that are excluded, or that may not break: the guard not_compiled, fullgraph, error_on_graph_break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards.compiling import not_compiled
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling, fullgraph_error
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def disable_region(code: Code) -> Code:
    """By the guard."""
    return not_compiled(code)


def compiles_region(code: Code) -> Code:
    """The helper is traced like the rest."""
    return code


@catches(compiles_region, exclude=disable_region)
def test_excluded_region_is_one_break(exclude: Code, device: torch.device, observe: Observe) -> None:
    """A helper under the guard not_compiled runs in eager code: one break, right numbers, and `fullgraph=True` refuses it.

    huggingface/transformers#40137. 2.0 to 2.15.
    """
    helper = exclude(lambda x: x * 2)

    def code(x: Tensor) -> Tensor:
        return helper(x.sin()).cos()

    report = check_compiled(code, {"any": (uniform((2,)).to(device),)}, observe)
    observe("fullgraph", fullgraph_error(code, torch.ones(2, device=device)))
    assert (report.graphs, len(report.breaks)) == (2, 1)
    assert fullgraph_error(code, torch.ones(2, device=device)) != "none"


def _inner(x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return x + 1


def _loop(x: Tensor) -> Tensor:
    for _ in range(2):
        x = x.sin()
        torch._dynamo.graph_break()
    return x


def _top(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


BREAKING: dict[str, Code] = {"top": _top, "inlined": lambda x: _inner(x.sin()).cos(), "loop": _loop}


def demand_one_graph(code: Code) -> Any:
    """`fullgraph=True`."""
    return compiling(code, fullgraph=True)


def hopes_for_one_graph(code: Code) -> Any:
    """The default."""
    return compiling(code)


@pytest.mark.parametrize("form", BREAKING)
@catches(hopes_for_one_graph, compiled_by=demand_one_graph)
def test_fullgraph_is_strict(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """`fullgraph=True` raises on a break at the top, in an inlined function and in a loop, and compiles no part of it.

    pytorch/pytorch#107639, pytorch/pytorch#107683. 2.0 to 2.15.
    """
    with compiled_by(BREAKING[form]) as (compiled, report):
        with pytest.raises(Exception, match="graph_break|Graph break|graph break|fullgraph") as caught:  # noqa: RUF043  # words
            compiled(torch.ones(2, device=device))
        observe("class", type(caught.value).__name__)
    assert report.graphs == 0


def switch(value: bool) -> Any:
    """As it is called."""
    return torch._dynamo.error_on_graph_break(value)


def switches_nothing(value: bool) -> Any:
    """The block alone."""
    return torch.no_grad()


@requires("torch._dynamo.error_on_graph_break")
@catches(switches_nothing, around=switch)
def test_break_can_be_made_an_error(around: Code, device: torch.device) -> None:
    """`error_on_graph_break(True)` makes a break inside it an error, `False` allows it, and neither weakens `fullgraph=True`.

    pytorch/pytorch#161747, pytorch/pytorch#162027. Since 2.9.
    """

    def code(x: Tensor, value: bool) -> Tensor:
        y = x.sin()
        with around(value):
            torch._dynamo.graph_break()
        return y.cos()

    x = torch.ones(2, device=device)
    with compiling(code) as (compiled, report):
        compiled(x, False)
        allowed = report.graphs
    assert (allowed, fullgraph_error(code, x, False) != "none") == (2, True)
    with compiling(code) as (compiled, report), pytest.raises(Exception, match="graph_break"):
        compiled(x, True)
    assert report.graphs == 0
