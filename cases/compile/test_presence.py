"""torch.compile is there, compiles, and compiles once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.incell import catches, host, requires, uncounted
from conformance.instruments.compilation import compiling

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def sum_of_two(x: Tensor) -> Tensor:
    """One graph of two operations."""
    return torch.sin(x) + 1


def resets_every_time(code: Code, x: Tensor) -> list[int]:
    """Reset between the calls, as if each were the first."""
    counts = []
    for _ in range(2):
        with compiling(code) as (compiled, report):
            compiled(x)
        counts.append(report.graphs)
    return [counts[0], sum(counts)]


def calls_again(code: Code, x: Tensor) -> list[int]:
    """Call twice and see what was compiled."""
    with compiling(code) as (compiled, report):
        compiled(x)
        first = report.graphs
        compiled(x)
    return [first, report.graphs]


@catches(resets_every_time, count=calls_again)
def test_second_call_compiles_nothing(count: Code, device: torch.device) -> None:
    """The same call a second time compiles nothing; after a reset, the count is that of a cold process.

    2.0 to 2.15.
    """
    x = torch.ones(2, device=device)
    assert count(sum_of_two, x) == [1, 1]
    assert calls_again(sum_of_two, x) == [1, 1]


def compile_and_count() -> int:
    """Compile, and count what was compiled."""
    with compiling(sum_of_two) as (compiled, report):
        compiled(torch.zeros(2))
    return report.graphs


def compiles_nothing() -> int:
    """`disable=True`, as a stray TORCH_COMPILE_DISABLE would have it: the answer is right, and nothing was compiled."""
    with compiling(sum_of_two, disable=True) as (compiled, report):
        compiled(torch.zeros(2))
    return report.graphs


@host
@catches(compiles_nothing, count=compile_and_count)
def test_compile_takes_this_python(count: Code, observe: Observe) -> None:
    """torch.compile compiles on the Python of this environment; where it refuses (2.0 on 3.11 and later), its cases are unsupported.

    pytorch/pytorch#104918, pytorch/pytorch#120233. The highest Python: 3.10 for 2.0, 3.11 to 2.3, 3.12 to 2.5, 3.13 to 2.9,
    3.14 to 2.14, 3.15 for 2.15 (read from the sources, run on 3.10 and 3.11).
    """
    observe("highest_python", _highest_python())
    assert count() == 1


def _highest_python() -> str:
    """By dynamo's own check, which compares `sys.version_info` with the first version that it refuses."""
    import inspect
    import re

    from torch._dynamo import eval_frame

    found = re.search(r"version_info >= \(3, (\d+)\):\s+raise RuntimeError", inspect.getsource(eval_frame))
    return f"3.{int(found[1]) - 1}" if found else f"not told, runs on 3.{sys.version_info[1]}"
