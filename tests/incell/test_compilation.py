"""The instrument for torch.compile: what it compares, what it counts, whom it blames."""

from __future__ import annotations

from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.compiling import no_recompiles, not_compiled, recompile_limit, uncompiled, without_prefix
from conformance.instruments.compilation import compiling, fullgraph_error
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.generalization import difference_of
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.snapshots import snapshot, state_of

ONE = torch.ones(2)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([ONE], (ONE,)),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (ONE, ONE.clone().requires_grad_()),
        (deque([1]), deque([2])),
        (SimpleNamespace(a=ONE), SimpleNamespace(a=ONE + 1)),
        (True, 1),
        ({1, 2}, {1, 3}),
        (2, 2.0),
    ],
)
def test_snapshots_tell_apart(expected: Any, got: Any) -> None:
    assert difference_of(snapshot(expected), snapshot(got))
    assert not difference_of(snapshot(expected), snapshot(expected))


def test_a_snapshot_holds_still_and_ends() -> None:
    ring: list[Any] = [ONE.clone()]
    ring.append(ring)
    before = snapshot(ring)
    ring[0].zero_()
    assert difference_of(before, snapshot(ring))


def test_state_is_parameters_gradients_and_plain_attributes() -> None:
    layer = nn.Linear(2, 2)
    layer.step = 3  # type: ignore[assignment]
    state = state_of(layer)
    assert {"weight", "bias", "weight.grad", ".step"} <= set(state)
    assert state_of(lambda: None) == {}


def branch(x: Tensor) -> Tensor:
    y = x.sin()
    return y + 1 if y.sum() > 0 else y - 1


def test_a_break_is_told_with_its_line() -> None:
    with compiling(branch) as (compiled, report):
        compiled(ONE)
    assert (report.graphs, len(report.breaks), report.skipped, report.recompiles) == (2, 1, [], [])
    assert "if y.sum() > 0" in report.breaks[0].blame
    assert "test_compilation.py:" in report.breaks[0].blame
    assert fullgraph_error(branch, ONE) != "none"
    assert fullgraph_error(torch.sin, ONE) == "none"


def test_listening_ends_with_its_block() -> None:
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.symbolic_convert import InstructionTranslator

    before = OutputGraph.compile_subgraph, InstructionTranslator.run, "run" in vars(InstructionTranslator)
    with compiling(branch) as (compiled, _):
        compiled(ONE)
    assert (OutputGraph.compile_subgraph, InstructionTranslator.run, "run" in vars(InstructionTranslator)) == before


def test_a_recompile_is_told_with_its_guard() -> None:
    report = check_compiled(lambda x, n: x * n, {"two": (ONE, "a" and 2.5), "text": call(ONE, 3)})
    assert report.after == [1, 2]
    assert len(report.recompiles) == 1
    assert report.recompiles[0] != "not told"


def test_a_wrong_answer_is_an_assertion() -> None:
    inputs = {"two": (ONE, 2), "three": (ONE, 3)}
    with pytest.raises(AssertionError, match="'three'"):
        check_compiled(lambda x, n: x * n, inputs, compiled_by=replays_first_program)


def test_an_error_of_the_compiler_is_raised() -> None:
    def fails(graph: Any, examples: Any) -> Any:
        raise LookupError("no")

    from torch._dynamo.backends.registry import register_backend

    register_backend(name="conformance_fails")(fails)
    with pytest.raises(Exception, match="no") as caught:
        check_compiled(torch.sin, {"any": (ONE,)}, backend="conformance_fails")
    assert not isinstance(caught.value, AssertionError)


def raises_on_three(x: Tensor, n: int) -> Tensor:
    if n == 3:
        raise LookupError
    return x * n


def test_errors_are_compared_by_class() -> None:
    check_compiled(raises_on_three, {"two": (ONE, 2), "three": (ONE, 3)})
    with pytest.raises(AssertionError, match="LookupError"):
        check_compiled(raises_on_three, {"two": (ONE, 2), "three": (ONE, 3)}, compiled_by=replays_first_program)


def test_gradients_are_compared() -> None:
    layer = nn.Linear(2, 2)
    check_compiled(layer, {"any": (ONE.clone().requires_grad_(),)}, backend="aot_eager", backward=True)


def test_guards_of_torch_compile() -> None:
    with recompile_limit(2), compiling(torch.sin, dynamic=False) as (compiled, report):
        for size in range(2, 6):
            compiled(torch.ones(size))
        with no_recompiles():
            compiled(torch.ones(2))
    assert report.graphs == 2
    layer = nn.Linear(2, 2)
    wrapped: Any = torch.compile(layer, backend="eager")
    assert uncompiled(wrapped) is layer
    assert list(without_prefix(wrapped.state_dict())) == ["weight", "bias"]
    assert torch.equal(not_compiled(torch.sin)(ONE), ONE.sin())
