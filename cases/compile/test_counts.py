"""Can the counts be believed? Every way of counting graphs and breaks must tell one story, and blame the right line."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.incell import catches, requires, uncounted
from conformance.instruments.compilation import compiling, observe_report
from conformance.instruments.compiled_calls import call, check_compiled

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def halve(x: Tensor) -> Tensor:
    """One break between two operations."""
    y = torch.add(x, 1)
    torch._dynamo.graph_break()
    return torch.div(y, 2)


def three_halves(x: Tensor) -> Tensor:
    """Three calls of a helper that breaks."""
    return halve(x) + halve(x * 3) + halve(x * 5)


def count_by_instrument(code: Code, x: Tensor) -> tuple[int, int]:
    """Graphs and breaks as this project counts them."""
    with compiling(code) as (compiled, report):
        compiled(x)
    return report.graphs, len(report.breaks)


def counts_lines_that_break(code: Code, x: Tensor) -> tuple[int, int]:
    """Breaks by distinct reason and line, as older logs show them: a line that breaks three times counts once."""
    with compiling(code) as (compiled, report):
        compiled(x)
    return report.graphs, len(set(report.breaks))


def explained(code: Code, x: Tensor) -> tuple[int, int]:
    """Graphs and breaks by `torch._dynamo.explain`: of function and arguments to a tuple on 2.0, curried to an object since."""
    import torch._dynamo as dynamo
    from torch._dynamo.backends import debugging

    if not hasattr(debugging, "ExplainOutput"):
        graphs = dynamo.explain(code, x)[2]
        return len(graphs), len(graphs) - 1
    dynamo.reset()
    told = dynamo.explain(code)(x)
    dynamo.reset()
    return told.graph_count, told.graph_break_count


def counted_by_dynamo(code: Code, x: Tensor) -> tuple[int, int]:
    """Graphs and breaks by dynamo's own counters."""
    import torch._dynamo as dynamo

    with compiling(code) as (compiled, _):
        compiled(x)
        counters = dynamo.utils.counters
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


@catches(counts_lines_that_break, count=count_by_instrument)
def test_counts_agree(count: Code, device: torch.device, observe: Observe) -> None:
    """explain, dynamo's counters and a counting backend give the same graphs and breaks: 5 and 4 for a helper that breaks thrice.

    pytorch/pytorch#97884. 2.0 to 2.15, whatever was compiled before in the process.
    """
    x = torch.ones(2, device=device)
    counts = {"instrument": count(three_halves, x), "explain": explained(three_halves, x), "counters": counted_by_dynamo(three_halves, x)}
    observe("counts", ", ".join(f"{name}={graphs}/{breaks}" for name, (graphs, breaks) in counts.items()))
    assert set(counts.values()) == {(5, 4)}


def explain_as_it_is_called(code: Code, x: Tensor) -> tuple[int, int]:
    """By whichever signature this release has."""
    return explained(code, x)


def counts_a_break_for_each_graph(code: Code, x: Tensor) -> tuple[int, int]:
    """Off by one: the last graph ends with the function."""
    graphs, _ = explained(code, x)
    return graphs, graphs


@catches(counts_a_break_for_each_graph, explain=explain_as_it_is_called)
def test_explain_counts_graphs(explain: Code, device: torch.device, observe: Observe) -> None:
    """`torch._dynamo.explain` finds the 2 graphs and the 1 break of a function that breaks once.

    pytorch/torchdynamo#895, pytorch/pytorch#93656: `explain(f, x)` gave a tuple on 2.0; `explain(f)(x)` gives an object since 2.1.
    """
    x = torch.ones(2, device=device)
    graphs, breaks = explain(halve, x)
    observe("explained", f"{graphs} graphs, {breaks} breaks")
    assert (graphs, breaks) == (2, 1)


def blame_innermost(report: Any) -> str:
    """The line that the instrument blames."""
    return str(report.breaks[0].blame)


def blames_the_caller(report: Any) -> str:
    """Take the line that was compiled for the line that broke."""
    return "cases/compile/test_counts.py:1: return halve(x) + halve(x * 3) + halve(x * 5)"


@catches(blames_the_caller, blame=blame_innermost)
def test_break_blames_its_line(blame: Code, device: torch.device, observe: Observe) -> None:
    """A break inside a helper is blamed on the helper's line: file, line and source of the innermost frame of the user's code.

    pytorch/pytorch#97884. 2.0 to 2.15.
    """
    with compiling(three_halves) as (compiled, report):
        compiled(torch.ones(2, device=device))
    observe_report(report, observe)
    place, _, source = blame(report).partition(": ")
    file, _, line = place.rpartition(":")
    assert source == "torch._dynamo.graph_break()"
    assert file.endswith("test_counts.py")
    assert linecache.getline(__file__, int(line)).strip() == source


def loop_that_breaks(x: Tensor) -> Tensor:
    """A break in a loop: dynamo gives the whole frame up."""
    for _ in range(2):
        x = torch.sin(x)
        torch._dynamo.graph_break()
    return x


def count_skipped_frames(report: Any) -> int:
    """Frames that were left to Python as a whole."""
    return len(report.skipped)


def counts_breaks_alone(report: Any) -> int:
    """No graph, so no graph break: all is well."""
    return len(report.breaks)


@catches(counts_breaks_alone, count=count_skipped_frames)
def test_skipped_frame_is_told(count: Code, device: torch.device, observe: Observe) -> None:
    """A frame that dynamo leaves to Python as a whole is counted and blamed, though no graph and no break is counted for it.

    Own observation: a break in a loop compiles nothing at all, in silence, on 2.0 to 2.15.
    """
    with compiling(loop_that_breaks) as (compiled, report):
        compiled(torch.ones(2, device=device))
    observe_report(report, observe)
    assert report.graphs == 0
    assert count(report) == 1
    assert "graph_break()" in report.skipped[0].blame or "for _ in" in report.skipped[0].blame


def ask_what_failed(told: list[str]) -> str:
    """The reason of the first recompilation."""
    return told[0]


def asks_for_nothing(told: list[str]) -> str:
    """That something was compiled again is all that is known."""
    return f"{len(told)} recompilations"


@catches(asks_for_nothing, ask=ask_what_failed)
def test_recompile_names_its_guard(ask: Code, device: torch.device, observe: Observe) -> None:
    """A recompilation names the guard that failed: the size that changed, the value that a number had.

    pytorch/pytorch#114511. 2.0 to 2.15, in each release's own words.
    """
    x = torch.ones(4, device=device)
    report = check_compiled(lambda x, n: x * len(n), {"abc": call(x, "abc"), "ab": call(x, "ab")}, observe)
    assert len(report.recompiles) == 1
    assert "'abc'" in ask(report.recompiles)
