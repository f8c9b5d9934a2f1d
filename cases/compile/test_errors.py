"""Errors under torch.compile keep their class, and code can tell that it is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import is_compiling
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def ask_the_guard(x: Tensor) -> Tensor:
    """By the guard is_compiling."""
    return x + 1 if is_compiling() else x + 2


def asks_the_tracer(x: Tensor) -> Tensor:
    """Another capture's flag."""
    return x + 1 if torch.jit.is_tracing() else x + 2


@catches(asks_the_tracer, ask=ask_the_guard)
def test_capture_is_known_inside(ask: Code, device: torch.device, observe: Observe) -> None:
    """The guard is_compiling is True inside compiled code and False in eager code, without a break.

    pytorch/pytorch#132635. 2.0 to 2.15; torch.compiler.is_compiling from 2.1.
    """
    x = torch.zeros(2, device=device)
    with compiling(ask) as (compiled, report):
        assert (compiled(x).tolist(), ask(x).tolist()) == ([1.0, 1.0], [2.0, 2.0])
    observe("breaks", len(report.breaks), better="lower")
    assert not report.breaks


def _refuse_odd(x: Tensor, n: int) -> Tensor:
    if n % 2:
        raise LookupError(f"{n} is odd")
    return x + n


def _index(x: Tensor, n: int) -> Tensor:
    return x[n] * 2


def _shapes(x: Tensor, n: int) -> Tensor:
    return x + torch.ones(n, device=x.device)


def _key(x: Tensor, n: int) -> Tensor:
    return x * {2: 1.0}[n]


def _division(x: Tensor, n: int) -> Tensor:
    return x * (1 // (n - 5))


RAISING: dict[str, tuple[Code, tuple[int, int]]] = {
    "own_error": (_refuse_odd, (2, 5)),
    "index": (_index, (2, 5)),
    "shape": (_shapes, (3, 5)),
    "key": (_key, (2, 5)),
    "division": (_division, (2, 5)),
}


@pytest.mark.parametrize("form", RAISING)
@catches(replays_first_program, compiled_by=compiling)
def test_error_keeps_its_class(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """What eager code raises on bad arguments compiled code raises too, of the same class.

    pytorch/pytorch#184364, pytorch/pytorch#184340. Errors that code raises itself: 2.0 to 2.15; some of
    Python's and of operations come out as the compiler's.
    """
    code, (good, bad) = RAISING[form]
    x = uniform((3,)).to(device)
    check_compiled(code, {"good": (x, good), "bad": (x, bad)}, observe, compiled_by=compiled_by)
