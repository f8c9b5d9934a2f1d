"""Rotary tables in captured programs: a trace or an export holds the table of the example, so it must hold all that will be asked for."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.capture import Exported, export, modes, nonstrict_is_dynamic, runner, trace
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.models import HoldsEnough
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def heads(length: int, device: torch.device) -> Tensor:
    """Heads `(1, length, 1, 4)`."""
    return uniform((1, length, 1, 4), str(length)).to(device)


class GrowsLazily(nn.Module):
    """A table that grows with the input: what is captured is the one of the example."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.rotary = RotaryCache(4, rows=4, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        if x.size(1) > self.rotary.rows:
            self.rotary._write(int(x.size(1)), torch.float32)
        return rotate(x, self.rotary.cos[: x.size(1)], self.rotary.sin[: x.size(1)])


class SlicesByANumber(HoldsEnough):
    """Enough rows, and a slice whose end is the example's length."""

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        return rotate(x, *self.rotary(int(x.size(1))))


@catches(Twin(GrowsLazily, "raises"), Twin(SlicesByANumber, "raises"), build=HoldsEnough)
def test_traced_table_serves_all_its_rows(build: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """A trace made on 3 positions turns 1, 5 and 40 as eager code does, if the table was long enough from the start.

    huggingface/transformers#27226 (its note: built early to make torch.jit.trace work). Loud on 1.13 to 2.15.
    """
    inputs = {f"length{n}": (heads(n, device),) for n in (3, 1, 5, 40)}
    check_trace(build(device), inputs, observe, stage)


@catches(SlicesByANumber, build=HoldsEnough)
def test_trace_of_one_token(build: Code, device: torch.device, observe: Observe) -> None:
    """A trace made on a single token turns each of many tokens by its own position.

    huggingface/transformers#27226 is the kin. A slice of one row, frozen, is spread over all of them in silence, 1.13 to 2.15.
    """
    traced = trace(build(device), (heads(1, device),)).program
    for length in (1, 5):
        off = rotation.error(traced(heads(length, device)), rotation.turned(heads(length, device), range(length)))
        observe(f"error{length}", round(off, 4), better="lower")
        assert off < 1e-5


def grow_first(cache: RotaryCache, x: Tensor) -> Tensor:
    """Ask the guard to grow."""
    cache.grow_to(12)
    return rotate(x, *cache(x.size(1)))


def grows_regardless(cache: RotaryCache, x: Tensor) -> Tensor:
    """Grow, captured or not."""
    cache._write(12, torch.float32)
    return rotate(x, *cache(x.size(1)))


@catches(grows_regardless, grow=grow_first)
def test_growth_in_a_trace_is_refused(grow: Code, device: torch.device) -> None:
    """Growing while torch.jit.trace records is refused: the program would hold the new table, and the module would have moved.

    karpathy/nanochat#520 for torch.compile. Holds on 1.13 to 2.15.
    """
    cache = RotaryCache(4, rows=8, device=device)
    with pytest.raises(RuntimeError, match="too small"):
        trace(lambda x: grow(cache, x), (heads(6, device),), check_trace=False)
    assert cache.rows == 8


def save_and_load(program: Any) -> Any:
    """Through a file of torch.jit."""
    file = io.BytesIO()
    torch.jit.save(program, file)
    file.seek(0)
    return torch.jit.load(file)


def loads_weights_alone(program: Any) -> Any:
    """The program again from its example's code, with tables that were left to the state dict of the module."""
    file = save_and_load(program)
    for name, table in file.named_buffers():
        if name.rpartition(".")[2] in ("cos", "sin"):
            table.zero_()
    return file


@catches(loads_weights_alone, store=save_and_load)
def test_saved_trace_has_its_table(store: Code, device: torch.device) -> None:
    """A traced program that was saved and loaded has its tables, which are in no state dict of the module.

    coreweave/tensorizer#96 is the kin. Holds on 1.13 to 2.15.
    """
    program = store(trace(HoldsEnough(device), (heads(3, device),)).program)
    assert rotation.error(program(heads(20, device)), rotation.turned(heads(20, device), range(20))) < 1e-5


STRICT = pytest.mark.parametrize("strict", [True, False], ids=["strict", "nonstrict"])


def export_its_rows(module: nn.Module, device: torch.device, strict: bool) -> Exported:
    """As many positions as the table holds."""
    if strict not in modes() or not (strict or nonstrict_is_dynamic()):
        pytest.skip(f"no dynamic shapes with strict={strict}")
    return export(module, (heads(6, device),), ({1: "length"},), strict=strict, bounds={"length": (2, 64)})


def exports_the_example(module: nn.Module, device: torch.device, strict: bool) -> Exported:
    """The example's length."""
    if strict not in modes() or not (strict or nonstrict_is_dynamic()):
        pytest.skip(f"no dynamic shapes with strict={strict}")
    return export(module, (heads(6, device),), strict=strict)


@requires("export")
@STRICT
@catches(Twin(exports_the_example, "raises"), capture=export_its_rows)
def test_exported_table_serves_its_rows(capture: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """An exported rotation serves all lengths up to its table's 64 rows, and refuses 65.

    pytorch/pytorch#163791 (a branch on the length). Since 2.1.
    """
    module = HoldsEnough(device)
    run = capture(module, device, strict).run
    check_generalizes(module, run, {f"length{n}": (heads(n, device),) for n in (6, 2, 40, 64)}, observe)
    with pytest.raises((RuntimeError, AssertionError)):
        run(heads(65, device))


def keep_tables(program: Any) -> Any:
    """Through a file of torch.export."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def rebuilds_from_the_state_dict(program: Any) -> Any:
    """Through a file, with tables as a state dict would leave them: at zero."""
    read = keep_tables(program)
    for table in [*read.state_dict.values(), *getattr(read, "constants", {}).values()]:
        if isinstance(table, Tensor):
            table.zero_()
    return read


@requires("export")
@catches(rebuilds_from_the_state_dict, store=keep_tables)
def test_saved_export_has_its_table(store: Code, device: torch.device) -> None:
    """An exported program that was saved and loaded has its tables, non-persistent though they are.

    coreweave/tensorizer#96 is the kin. Since 2.1.
    """
    program = store(export(HoldsEnough(device), (heads(6, device),)).program)
    assert rotation.error(runner(program)(heads(6, device)), rotation.turned(heads(6, device), range(6))) < 1e-5
