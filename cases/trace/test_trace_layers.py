"""Attention under torch.jit.trace, saved and loaded, and as torch ships it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import weights
from conformance.instruments.capture import trace
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Mixing(nn.Module):
    """Causal self-attention of two heads that takes its sizes from the input; also gives its heads."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 8)

    def sizes(self, x: Tensor) -> tuple[Any, Any]:
        """Batch and length."""
        return x.size(0), x.size(1)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        """`x` `(B, T, 4)`."""
        batch, length = self.sizes(x)
        heads = self.project(x).view(batch, length, 2, 4).transpose(1, 2)
        at = torch.arange(length, device=x.device)
        scores = (heads @ heads.transpose(2, 3)).masked_fill(at[None, :] > at[:, None], -torch.inf)
        return scores.softmax(-1) @ heads, (heads,)


class MixesByIntSizes(Mixing):
    """The same, its sizes Python numbers."""

    def sizes(self, x: Tensor) -> tuple[Any, Any]:
        """Batch and length of the example."""
        return int(x.size(0)), int(x.size(1))


@catches(Twin(MixesByIntSizes, "raises"), build=Mixing)
def test_saved_trace_follows_sizes(build: Callable[[], nn.Module], device: torch.device, observe: Observe) -> None:
    """A traced attention that was saved and loaded answers shapes that it never saw.

    pytorch/pytorch#116612. 1.13 to 2.15.
    """
    module = weights.fill(build()).to(device).eval()
    traced = trace(module, (uniform((1, 5, 4)).to(device),))
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(traced.program, file)
        file.seek(0)
        loaded = torch.jit.load(file, map_location=device)
    inputs = {name: (uniform(tuple(map(int, name.split("x"))), name).to(device),) for name in ("1x5x4", "2x3x4", "4x1x4")}
    check_generalizes(module, loaded, inputs, observe)


class Attending(nn.Module):
    """nn.MultiheadAttention on itself."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.attention, self.need_weights = nn.MultiheadAttention(8, 2, batch_first=True), need_weights

    def mask(self, x: Tensor) -> Tensor | None:
        """None: everything is seen."""
        return None

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, 8)`."""
        answer: Tensor = self.attention(x, x, x, attn_mask=self.mask(x), need_weights=self.need_weights)[0]
        return answer


class MasksForExampleLength(Attending):
    """A mask of the example's length."""

    def mask(self, x: Tensor) -> Tensor | None:
        """A constant of Python's."""
        return torch.zeros(int(x.size(1)), int(x.size(1)), device=x.device)


@pytest.mark.parametrize("need_weights", [False, True], ids=["no_weights", "weights"])
@catches(Twin(MasksForExampleLength, "raises"), build=Attending)
def test_multihead_attention_follows(build: Code, need_weights: bool, device: torch.device, observe: Observe, stage: Any) -> None:
    """nn.MultiheadAttention, traced in training mode, follows batch and length in spite of its tracer warnings.

    pytorch/pytorch#122321. 1.13 to 2.15; observed warnings 3 and 4 (1.13: 4 and 4).
    """
    module = weights.fill(build(need_weights)).to(device).train()
    inputs = {name: (uniform(tuple(map(int, name.split("x"))), name).to(device),) for name in ("2x5x8", "3x5x8", "2x7x8")}
    check_trace(module, inputs, observe, stage)
