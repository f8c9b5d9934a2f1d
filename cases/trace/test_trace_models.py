"""Whole models and blocks under torch.jit.trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from conformance.guards import RotaryCache, rotate
from conformance.incell import catches, dtypes, subjects, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import weights
from conformance.instruments.capture import trace
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.models import AsItIs, check_model
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class CropsToLengthOfExample(AsItIs):
    """The model, its inputs cut at a length that became a Python number."""

    def forward(self, *inputs: Tensor) -> Any:
        """Each input `(B, T)`."""
        return self.model(*(x[:, : int(inputs[0].size(1))] for x in inputs))


@subjects()
@catches(CropsToLengthOfExample, wrap=AsItIs)
def test_subject_trace_generalizes(wrap: Code, subject: Any, device: torch.device, observe: Observe, stage: Any) -> None:
    """A subject traced on one input answers others like eager code: batches, lengths, one token, padding, other values.

    The article on tracing OPT; karpathy/nanochat. 1.13 to 2.15; OPT with transformers 4.49 to 5.24.
    """
    with stage("build"):
        model = wrap(subject.build()).to(device).eval()
    # torch 2.0 would fuse kernels for each shape, for half a minute; what is asked is whether the graph is right.
    with torch.no_grad(), torch.jit.optimized_execution(False):
        with stage("capture"):
            inputs = subject.inputs(device=device)
            traced = trace(model, inputs, strict=not isinstance(model(*inputs), dict))  # a dict is told apart only when asked for
        observe("tracer_warnings", len(traced.warned), better="lower")
        observe("warned_lines", "; ".join(traced.warned) or "none")
        observe("frozen_lines", "; ".join(traced.frozen) or "none")
        with stage("compare"):
            check_model(subject, wrap(subject.build()).to(device).eval(), traced, device, observe, traced.lines)


def cast_then_trace(model: nn.Module, dtype: torch.dtype, inputs: tuple[Tensor, ...]) -> Code:
    """Cast the model, trace what is shipped."""
    return trace(model.to(dtype), inputs).program


def casts_the_program(model: nn.Module, dtype: torch.dtype, inputs: tuple[Tensor, ...]) -> Code:
    """Trace in float32, cast the program."""
    program = trace(model, inputs).program.to(dtype)
    model.to(dtype)
    return program


@subjects("opt")
@dtypes("bfloat16")
@catches(Twin(casts_the_program, "raises"), capture=cast_then_trace)
def test_cast_before_trace(capture: Code, subject: Any, dtype: torch.dtype, device: torch.device, observe: Observe) -> None:
    """OPT cast before the trace answers like eager code in that dtype; a program cast after it refuses.

    The article on tracing OPT; own observation: the mask's float32 is part of the program, loud on 2.0 to 2.15.
    """
    model = subject.build().to(device)
    with torch.no_grad():
        program = capture(model, dtype, subject.inputs(device=device))
        inputs = {"example": subject.inputs(device=device), "longer": subject.inputs("batch3_longer_padded", device)}
        check_generalizes(model, program, inputs, observe)


class Attention(nn.Module):
    """One OPT-like attention with OPT's three checks of shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.out = (nn.Linear(16, 16) for _ in range(4))

    def split(self, x: Tensor, length: Any, batch: Any) -> Tensor:
        """Heads `(B, 4, T, 4)`."""
        return x.view(batch, length, 4, 4).transpose(1, 2).contiguous()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`x` `(B, T, 16)`, additive `mask` `(B, 1, T, T)`."""
        batch, length, width = x.size()
        q, k, v = (self.split(p(x), -1, batch).view(batch * 4, -1, 4) for p in (self.queries, self.keys, self.values))
        scores = torch.bmm(q * 0.5, k.transpose(1, 2))
        if scores.size() != (batch * 4, length, k.size(1)):
            raise ValueError(f"scores are {scores.size()}")
        if mask.size() != (batch, 1, length, k.size(1)):
            raise ValueError(f"mask is {mask.size()}")
        shares = (scores.view(batch, 4, length, -1) + mask).view(batch * 4, length, -1).softmax(-1)
        mixed = torch.bmm(shares, v)
        if mixed.size() != (batch * 4, length, 4):
            raise ValueError(f"mixed values are {mixed.size()}")
        answer: Tensor = self.out(mixed.view(batch, 4, length, 4).transpose(1, 2).reshape(batch, length, width))
        return answer


class AttentionBySizesOfExample(Attention):
    """The article's surgery: sizes cast to int before the view."""

    def split(self, x: Tensor, length: Any, batch: Any) -> Tensor:
        """Heads of the example's batch."""
        return super().split(x, length, int(batch))


@catches(AttentionBySizesOfExample, build=Attention)
def test_opt_attention_follows(build: Callable[[], nn.Module], device: torch.device, observe: Observe, stage: Any) -> None:
    """OPT's attention follows batch and length in spite of the tracer's warnings about its three checks of shapes.

    The article on tracing OPT, which cut them out. 3 warnings, 1.13 to 2.15.
    """
    module = weights.fill(build()).to(device).eval()
    sizes = ((1, 7), (1, 5), (2, 7), (3, 9), (2, 1))
    inputs = {f"{b}x{t}": (uniform((b, t, 16)).to(device), uniform((b, 1, t, t), "mask").to(device)) for b, t in sizes}
    assert len(check_trace(module, inputs, observe, stage).warned) == 3


class Packing(nn.Module):
    """An LSTM over packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """`x` `(B, T, 3)`, `lengths` `(B,)` descending."""
        packed = pack_padded_sequence(x, self.lengths(lengths), batch_first=True)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]

    def lengths(self, lengths: Tensor) -> Any:
        """As a tensor, on the CPU as packing wants it."""
        return lengths


class PacksLengthsOfExample(Packing):
    """Lengths as a list of Python numbers."""

    def lengths(self, lengths: Tensor) -> Any:
        """Those of the example."""
        return lengths.tolist()


@catches(Twin(PacksLengthsOfExample, "raises"), build=Packing)
def test_packed_sequences_follow(build: Callable[[], nn.Module], device: torch.device, observe: Observe, stage: Any) -> None:
    """An LSTM over packed sequences, traced once, takes other batches and lengths.

    pytorch/pytorch#12906, pytorch/pytorch#15319. Since 2.1; on 1.13 and 2.0 longer inputs raise.
    """
    module = weights.fill(build()).to(device).eval()
    rows = ((5, 3, 2), (4, 4, 1), (6, 2), (3, 3, 3, 1))
    inputs = {"_".join(map(str, r)): (uniform((len(r), max(r), 3), str(r)).to(device), torch.tensor(r)) for r in rows}
    with torch.no_grad():
        check_trace(module, inputs, observe, stage)


class Rotating(nn.Module):
    """Heads turned by the guard's table, which holds 32 positions from the start."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryCache(8, rows=32)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, H, 8)`."""
        return rotate(x, *self.rotary(x.size(1)))


class BakesTableOfExample(Rotating):
    """The table cut to a Python length."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, H, 8)`."""
        return rotate(x, *self.rotary(int(x.size(1))))


@catches(Twin(BakesTableOfExample, "raises"), build=Rotating)
def test_rotary_guard_follows(build: Callable[[], nn.Module], device: torch.device, observe: Observe, stage: Any) -> None:
    """The guard RotaryCache, traced on a short input, turns longer ones by the right angles, and refuses those beyond its table.

    huggingface/transformers#27226. 1.13 to 2.15.
    """
    inputs = {f"length{n}": (uniform((1, n, 2, 8)).to(device),) for n in (4, 9, 1, 32)}
    traced = check_trace(build().to(device), inputs, observe, stage)
    with pytest.raises(RuntimeError):
        traced(uniform((1, 33, 2, 8)).to(device))
