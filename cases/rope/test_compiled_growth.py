"""Tables that grow in a compiled forward pass, and what each form of growth costs in graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.guards.rotary import rotate
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.compilation import compiling, observe_report
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.models import HoldsEnough
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def heads(length: int, device: torch.device) -> Tensor:
    """Heads `(1, length, 1, 4)`."""
    return uniform((1, length, 1, 4), str(length)).to(device)


class Growing(nn.Module):
    """Tables that grow in the forward pass, by assignment to the registered buffers."""

    cos: Tensor
    sin: Tensor

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.keep(*self.make(8, device))

    def make(self, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines."""
        angles = torch.arange(rows, device=device).float()[:, None] * 10000.0 ** (torch.arange(0, 4, 2, device=device).float() / -4)
        return angles.cos(), angles.sin()

    def keep(self, cos: Tensor, sin: Tensor) -> None:
        """Register the tables."""
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def replace(self, cos: Tensor, sin: Tensor) -> None:
        """Put longer tables in their place."""
        self.cos, self.sin = cos, sin

    def needed(self, x: Tensor) -> int:
        """Rows for this input."""
        return x.size(1)

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        rows = self.needed(x)
        if rows > self.cos.size(0):
            self.replace(*self.make(2 * rows, x.device))
        return rotate(x, self.cos[: x.size(1)], self.sin[: x.size(1)])


class GrowsByRegistering(Growing):
    """Grows by registering the buffers again."""

    def replace(self, cos: Tensor, sin: Tensor) -> None:
        """Register longer tables."""
        self.keep(cos, sin)


class GrowsByDecidingOnData(Growing):
    """Reads the number of rows from position ids, as a number."""

    def needed(self, x: Tensor) -> int:
        """Rows by `.item()`."""
        return int(torch.arange(x.size(1), device=x.device).max().item()) + 1


@catches(Twin(GrowsByDecidingOnData, "raises"), build=Growing)
def test_growth_by_assignment_compiles(build: Code, device: torch.device, observe: Observe) -> None:
    """Tables that grow in a compiled forward pass by assignment stay in one graph, with right numbers at 6, 12, 20 and 40.

    meta-pytorch/torchtune#1663, karpathy/nanochat#520; deciding by `.item()` breaks the graph. Holds on 2.0 to 2.15.
    """
    module = build(device)
    check_compiled(module, {f"length{n}": (heads(n, device),) for n in (4, 6, 12, 20, 40)}, observe, fullgraph=True)
    with compiling(module, fullgraph=True) as (compiled, _):
        for length in (6, 12, 20, 40):
            assert rotation.error(compiled(heads(length, device)), rotation.turned(heads(length, device), range(length))) < 1e-5
    assert module.cos.size(0) == 80


@catches(Twin(replays_first_program, "raises"), compiled_by=compiling)
def test_growth_by_registering_native(compiled_by: Code, device: torch.device, observe: Observe) -> None:
    """`register_buffer` in a compiled forward pass stays in one graph.

    meta-pytorch/torchtune#1663, karpathy/nanochat#520: it breaks the graph until 2.4. Since 2.5.
    """
    inputs = {f"length{n}": (heads(n, device),) for n in (4, 6, 12, 20, 40)}
    check_compiled(GrowsByRegistering(device), inputs, observe, compiled_by=compiled_by, fullgraph=True)


class GrowsExactly(Growing):
    """Tables as long as the longest input so far."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.replace(*self.make(1, device))

    def make(self, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines for half the rows asked for, which were doubled."""
        return super().make(max(1, rows // 2), device)


@catches(GrowsExactly, build=HoldsEnough)
def test_lengths_share_graphs(build: Code, device: torch.device, observe: Observe) -> None:
    """Inputs of 4, 3, 8, 6, 12 and 5 positions share two graphs when the table holds them all; one that grows costs a graph a length.

    foundation-model-stack/foundation-model-stack#64. With `dynamic=True`, on 2.0 to 2.15.
    """
    module = build(device)
    with compiling(module, dynamic=True) as (compiled, report):
        for length in (4, 4, 3, 8, 6, 12, 12, 5):
            assert rotation.error(compiled(heads(length, device)), rotation.turned(heads(length, device), range(length))) < 1e-5
    observe_report(report, observe)
    assert report.graphs <= 2
