"""Rotary tables in compiled code: changes that are seen, positions that share a graph, a base that follows the length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.rotary import DynamicRotaryCache, RotaryCache, rotate
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.compilation import compiling, observe_report
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def heads(length: int, device: torch.device) -> Tensor:
    """Heads `(1, length, 1, 4)`."""
    return uniform((1, length, 1, 4), str(length)).to(device)


class Turning(nn.Module):
    """Heads turned by a cache."""

    def __init__(self, cache: RotaryCache) -> None:
        super().__init__()
        self.rotary = cache

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Heads `(B, T, H, 4)` of positions from `offset` on."""
        return rotate(x, *self.rotary(x.size(1), offset))


class TakesTablesOnce(Turning):
    """Heads turned by what the cache gave out at construction."""

    def __init__(self, cache: RotaryCache) -> None:
        super().__init__(cache)
        self.tables = tuple(table.clone() for table in RotaryCache(4, rows=64, device=cache.cos.device)(64))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """Heads `(B, T, H, 4)` of positions from `offset` on."""
        return rotate(x, *(table.narrow(0, offset, x.size(1)) for table in self.tables))


@pytest.mark.parametrize("grown", [False, True], ids=["as_long", "grown"])
@catches(TakesTablesOnce, build=Turning)
def test_new_table_is_seen(build: Code, grown: bool, device: torch.device, observe: Observe) -> None:
    """Compiled code reads the tables that the guard holds now: grown, and written with another base, between two calls.

    pytorch/pytorch#115774. The guard writes into the same memory where it can, since dynamo until 2.3 looks at no other of equal
    shape. Since 2.1; on 2.0 a graph from before a growth goes on reading the table from before it.
    """
    cache = RotaryCache(4, rows=8, device=device)
    with compiling(build(cache), fullgraph=True) as (compiled, report):
        off = [rotation.error(compiled(heads(6, device)), rotation.turned(heads(6, device), range(6)))]
        if grown:
            cache.grow_to(40)
            off.append(rotation.error(compiled(heads(20, device)), rotation.turned(heads(20, device), range(20))))
        cache.base = 100.0
        cache.reset_parameters()
        off.append(rotation.error(compiled(heads(6, device)), rotation.turned(heads(6, device), range(6), 100.0)))
    observe_report(report, observe)
    assert max(off) < 1e-5


class HoldsPlainly(nn.Module):
    """A table in a plain attribute."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.tables = RotaryCache(4, rows=8, device=device)(8)

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, 8, H, 4)`."""
        return rotate(x, *self.tables)


def _replace(module: HoldsPlainly) -> None:
    module.tables = RotaryCache(4, rows=8, base=100.0, device=module.tables[0].device)(8)


#: Name -> the module, and how its tables become other tensors of the same shape.
REPLACED: dict[str, tuple[Code, Code]] = {
    "attribute": (HoldsPlainly, _replace),
    "cast": (lambda device: Turning(RotaryCache(4, rows=8, device=device)), lambda module: module.bfloat16()),
}


@pytest.mark.parametrize("how", REPLACED)
@catches(replays_first_program, compiled_by=compiling)
def test_replaced_table_is_seen_native(compiled_by: Code, how: str, device: torch.device, observe: Observe) -> None:
    """Compiled code sees that a table became another tensor: a plain attribute assigned, a buffer cast with its module.

    pytorch/pytorch#115774: until 2.3 the first table is used for ever, in silence. Since 2.4.
    """
    build, change = REPLACED[how]
    inputs = {"first": call(heads(8, device)), "replaced": call(heads(8, device), before=change)}
    check_compiled(build(device), inputs, observe, compiled_by=compiled_by)


class ByPositions(nn.Module):
    """One new token after another, its position given as a tensor."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.rotary = RotaryCache(4, rows=64, device=device)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """Heads `(1, 1, H, 4)`, position `(1,)`."""
        return rotate(x, *self.rotary.at(position))


class CountsInTheModule(ByPositions):
    """One new token after another, counted by a number in the module."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.past = 0

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """Heads `(1, 1, H, 4)`."""
        self.past += 1
        return rotate(x, *self.rotary(1, self.past - 1))


@catches(CountsInTheModule, build=ByPositions)
def test_tokens_share_a_graph(build: Code, device: torch.device, observe: Observe) -> None:
    """12 tokens decoded one by one share a graph when the position is a tensor; a counter in the module costs a graph a token.

    Observed here: until the limit of recompiles, after which the code runs uncompiled. Since 2.0.
    """
    module = build(device)
    with compiling(module) as (compiled, report):
        for token in range(12):
            got = compiled(heads(1, device), torch.tensor([token], device=device))
            assert rotation.error(got, rotation.turned(heads(1, device), [token])) < 1e-5
    observe_report(report, observe)
    assert report.graphs == 1


@pytest.mark.parametrize("lengths", [(6, 12, 6, 20, 8), (12, 6, 12)], ids=["short_first", "long_first"])
@catches(Twin(replays_first_program, "raises"), compiled_by=compiling)
def test_dynamic_base_compiles(compiled_by: Code, lengths: tuple[int, ...], device: torch.device, observe: Observe) -> None:
    """The guard for dynamic NTK gives each length its own base in compiled code too, in any order.

    huggingface/transformers#25306 within torch.compile. Since 2.0.
    """
    module = Turning(DynamicRotaryCache(4, trained=8, factor=2.0, device=device))
    inputs = {f"{order}:{length}": (heads(length, device),) for order, length in enumerate(lengths)}
    check_compiled(module, inputs, observe, compiled_by=compiled_by, fullgraph=True)
