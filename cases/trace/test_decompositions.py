"""What torch.export leaves composite, and what its default decompositions make of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments import weights
from conformance.instruments.capture import export, runner
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.weights import uniform

pytestmark = [requires("export"), values, uncounted("torch.export records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def decompose(program: Any) -> Any:
    """Composite ops in terms of core ones."""
    if not hasattr(program, "run_decompositions"):
        pytest.skip("an exported program has no run_decompositions")
    return program.run_decompositions()


def keeps_composites(program: Any) -> Any:
    """The program as exported."""
    return program


def _ops(program: Any) -> set[str]:
    return {str(n.target).replace("aten.", "").replace(".default", "") for n in program.graph.nodes if n.op == "call_function"}


class Normed(nn.Module):
    """The native rms_norm."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 4)`."""
        return torch.nn.functional.rms_norm(x, (4,))


@requires("torch.nn.functional.rms_norm")
@catches(keeps_composites, lower=decompose)
def test_rms_norm_decomposes(lower: Code, device: torch.device, observe: Observe) -> None:
    """rms_norm is gone from a decomposed program, which gives the same numbers.

    pytorch/pytorch#171897. 2.4 to 2.15.
    """
    x = uniform((2, 4)).to(device)
    program = lower(export(Normed(), (x,)).program)
    observe("ops", len(_ops(program)), better="lower")
    assert not [op for op in _ops(program) if "rms" in op]
    check_generalizes(Normed(), runner(program), {"example": (x,)})


class Composite(nn.Module):
    """linear, layer_norm and silu."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 4)`."""
        return torch.nn.functional.silu(self.norm(self.linear(x)))


#: What the default decompositions make of it, on every release that has them.
CORE = {"addmm", "mul.Tensor", "native_layer_norm", "permute", "sigmoid"}


def decompose_unless_done(program: Any) -> Any:
    """2.1 exports core ops at once."""
    return decompose(program) if hasattr(program, "run_decompositions") else program


class LeavesOneComposite(Composite):
    """The same with an op that stays composite by being another one."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 4)`."""
        return torch.nn.functional.gelu(self.norm(self.linear(x)))


@catches(LeavesOneComposite, build=Composite)
def test_core_ops_are_stable(build: Callable[[], nn.Module], device: torch.device, observe: Observe) -> None:
    """The default decompositions leave the same core ops on every release, whatever export left composite.

    pytorch/pytorch#148790. Core at once in 2.1; composite linear, layer_norm, silu are left since 2.4.
    """
    program = export(weights.fill(build()).to(device).eval(), (uniform((2, 4)).to(device),)).program
    default = inspect.signature(torch.export.export).parameters.get("strict")
    observe("strict_default", str(default.default) if default is not None else "absent")
    observe("exported", ", ".join(sorted(op for op in _ops(program) if "getitem" not in op)))
    assert {op for op in _ops(decompose_unless_done(program)) if "getitem" not in op} == CORE
