"""Sizes that change: how many graphs they cost, what is marked as dynamic, and what 0 and 1 do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import RotaryCache
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def share(x: Tensor) -> Tensor:
    """A softmax over the last axis."""
    return (x * 2).softmax(-1)


#: Name -> options of torch.compile and the graphs that 8 lengths cost.
SETTINGS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 2),
    "dynamic": ({"dynamic": True}, 1),
    "static": ({"dynamic": False}, 8),
}


def call_with_sizes(x: Tensor) -> Tensor:
    """Let the compiler see the size."""
    return share(x)


def reads_the_size(x: Tensor) -> Tensor:
    """Decide by the size in Python, so that each length is a program of its own."""
    return share(x) if x.size(-1) % 2 else share(x) * x.size(-1) / (x.size(-1) if x.size(-1) > 7 else 1)


@values
@pytest.mark.parametrize("setting", SETTINGS)
@catches(reads_the_size, code=call_with_sizes)
def test_lengths_cost_their_graphs(code: Code, setting: str, device: torch.device, observe: Observe) -> None:
    """8 lengths cost 2 graphs by default, 1 with `dynamic=True`, 8 with `dynamic=False`.

    GeeeekExplorer/nano-vllm#105. 2.1 to 2.15; on 2.0 the default is static.
    """
    options, graphs = SETTINGS[setting]
    inputs = {f"length{t}": (uniform((2, t)).to(device),) for t in range(5, 13)}
    with compiling(code, **options) as (compiled, report):
        for name, (x,) in inputs.items():
            assert torch.allclose(compiled(x), share(x), atol=1e-6), name
    observe("graphs", report.graphs, better="lower")
    assert report.graphs == graphs


def mark(x: Tensor) -> Tensor:
    """Say that the last axis varies."""
    torch._dynamo.mark_dynamic(x, 1)
    return x


def marks_other_axis(x: Tensor) -> Tensor:
    """Say that the first axis varies."""
    torch._dynamo.mark_dynamic(x, 0)
    return x


def _require_marks() -> None:
    import torch._dynamo as dynamo

    if not hasattr(dynamo, "maybe_mark_dynamic"):
        pytest.skip("no torch._dynamo.maybe_mark_dynamic: mark_dynamic of this torch needs settings of its own")


@values
@catches(marks_other_axis, declare=mark)
def test_marked_length_is_one_graph(declare: Code, device: torch.device, observe: Observe) -> None:
    """8 lengths of an axis that was marked dynamic cost one graph.

    pytorch/torchtitan's practice; GeeeekExplorer/nano-vllm#105. Since 2.1.
    """
    _require_marks()
    inputs = {f"length{t}": (declare(uniform((2, t)).to(device)),) for t in range(5, 13)}
    assert check_compiled(share, inputs, observe).graphs == 1


def double_five(x: Tensor) -> Tensor:
    """Code that pins the size."""
    return x * 2 if x.size(0) == 5 else x + 1


def mark_strictly(x: Tensor) -> None:
    """An error if the axis cannot vary."""
    torch._dynamo.mark_dynamic(x, 0)


def marks_softly(x: Tensor) -> None:
    """A wish."""
    torch._dynamo.maybe_mark_dynamic(x, 0)


@catches(marks_softly, declare=mark_strictly)
def test_pinned_axis_is_refused(declare: Code, device: torch.device, observe: Observe) -> None:
    """An axis that was marked dynamic and that the code pins to one size is refused by ConstraintViolationError.

    pytorch/pytorch#136002, pytorch/pytorch#148040, pytorch/pytorch#145587. Since 2.1; `maybe_mark_dynamic` never refuses.
    """
    _require_marks()
    x = torch.ones(5, device=device)
    declare(x)
    with compiling(double_five) as (compiled, _), pytest.raises(Exception, match="onstraint") as caught:
        compiled(x)
    observe("class", type(caught.value).__name__)


@values
@catches(Twin(mark_strictly, "raises"), declare=marks_softly)
def test_soft_mark_is_no_promise(declare: Code, device: torch.device, observe: Observe) -> None:
    """`maybe_mark_dynamic` on an axis that the code pins changes no answer.

    pytorch/pytorch#136002. Since 2.1.
    """
    _require_marks()
    x = torch.ones(5, device=device)
    declare(x)
    report = check_compiled(double_five, {"pinned": (x,), "other": (torch.ones(6, device=device),)}, observe)
    assert report.graphs == 2


SIZES = ((2, 5), (2, 9), (2, 1), (1, 7), (3, 1), (0, 4))


def ask_for_dynamic() -> dict[str, Any]:
    """Symbols from the first call on."""
    return {"dynamic": True}


def leaves_the_default() -> dict[str, Any]:
    """Symbols after a size has changed."""
    return {}


@values
@catches(leaves_the_default, options=ask_for_dynamic)
def test_zero_and_one_are_special(options: Code, device: torch.device, observe: Observe) -> None:
    """With `dynamic=True` sizes from 2 on share a graph; 0 and 1 cost graphs of their own, and every answer is right.

    pytorch/pytorch#133653. Graphs after 2x5, 2x9, 2x1, 1x7, 3x1, 0x4: 1, 1, 2, 3, 3, 4 on 2.1 to 2.15.
    """
    inputs = {f"{b}x{t}": (uniform((b, t)).to(device),) for b, t in SIZES}
    report = check_compiled(share, inputs, observe, **options())
    observe("after", ", ".join(map(str, report.after)))
    assert report.after == [1, 1, 2, 3, 3, 4]


class Sliced(nn.Module):
    """Positions in a table that is there from the start."""

    cos: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cos", torch.outer(torch.arange(64.0), torch.ones(4)).cos(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, 4)`."""
        return x * self.cos[: x.size(1)]


class Grown(nn.Module):
    """A table that grows in the forward, as it is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.cos: Any = None

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, 4)`."""
        length = x.size(1)
        if length > self.rows:
            self.rows = length
            self.cos = torch.outer(torch.arange(length, dtype=torch.float32, device=x.device), torch.ones(4, device=x.device)).cos()
        return x * self.cos[:length]


class ByGuard(nn.Module):
    """The guard's table of 64 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryCache(8, rows=64)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, 4)`."""
        return x * self.rotary(x.size(1))[0]


def make_before(table: str) -> nn.Module:
    """All rows from the start."""
    return Sliced() if table == "sliced" else ByGuard()


def grows_in_forward(table: str) -> nn.Module:
    """Rows when they are needed."""
    return Grown()


@values
@pytest.mark.parametrize("table", ["sliced", "guard"])
@catches(grows_in_forward, build=make_before)
def test_table_made_before_settles(build: Code, table: str, device: torch.device, observe: Observe) -> None:
    """A rotary table made before compilation costs 2 graphs for 8 calls of changing length, and no break.

    foundation-model-stack/foundation-model-stack#64. 2.1 to 2.15. Grown in the forward: 6 graphs on 2.1 to 2.4, 5 on 2.5 to 2.7,
    7 since 2.8, all answers right.
    """
    module = build(table).to(device)
    inputs = {f"call{i}": (torch.ones(1, t, 4, device=device),) for i, t in enumerate((4, 4, 3, 8, 6, 12, 12, 5))}
    report = check_compiled(module, inputs, observe, fullgraph=True)
    assert report.graphs == 2


def _refuse(module: RotaryCache, length: int) -> Any:
    return module(length)[0]


def reaches_beyond(module: RotaryCache, length: int) -> Any:
    """Take what rows there are."""
    return module.cos[:length]


@catches(reaches_beyond, read=_refuse)
def test_short_table_refuses(read: Code, device: torch.device) -> None:
    """The guard RotaryCache refuses, in compiled code too, a length beyond its rows, with the error that says how to go on.

    foundation-model-stack/foundation-model-stack#64. 2.0 to 2.15.
    """
    module = RotaryCache(8, rows=16, device=device)
    with compiling(lambda x: x * read(module, x.size(0))) as (compiled, _):
        compiled(torch.ones(16, 4, device=device))
        with pytest.raises(Exception, match=r"grow_to|must match|broadcast") as caught:
            compiled(torch.ones(17, 4, device=device))
    assert "grow_to" in str(caught.value)
