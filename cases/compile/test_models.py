"""Whole models under torch.compile: the built-in subjects, and OPT's block."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, deep, limits, requires, subjects, uncounted, values
from conformance.instruments.assignments import assigned
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.models import AsItIs, blame_first, check_whole
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.snapshots import OF_MODULES
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class ReportsOnTheWay(AsItIs):
    """The model, and a line about its output."""

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        result = self.model(*inputs)
        print("mean", float(result.mean()))
        return result * 1


@subjects()
@catches(ReportsOnTheWay, wrap=AsItIs)
def test_subject_compiles_whole(wrap: Code, subject: Any, device: torch.device, observe: Observe, stage: Any, depth: str) -> None:
    """A subject compiles without a break, and equals eager code on the variations of its inputs; its graphs are observed.

    karpathy/nanochat; the article on tracing OPT. GPT: 2.0 to 2.15. OPT breaks on 2.2 to 2.4 and raises on 2.5 and 2.6, with the
    transformers of those releases. The first three variations; at `--depth deep` all.
    """
    with stage("build"):
        model = wrap(subject.build()).to(device).eval()
    inputs = dict(list(subject.all_inputs(device).items())[: None if depth == "deep" else 3])
    with torch.no_grad(), stage("compile"):
        report = check_compiled(model, inputs, observe)
    check_whole(report)


class CountsItsCalls(AsItIs):
    """The model, and an attribute that is another number at each call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.calls = 0

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        self.calls += 1
        return self.model(*inputs) if self.calls % 1000 else None


#: Calls with one and the same input: fewer than dynamo compiles a frame for, so that it does not give up in silence.
CALLS = 6


@subjects()
@catches(CountsItsCalls, wrap=AsItIs)
def test_subject_settles(wrap: Code, subject: Any, device: torch.device, observe: Observe, stage: Any) -> None:
    """A subject that is compiled and called again with one and the same input is compiled no more after the second call.

    What forward keeps is guarded: a counter or a list that changes at each call costs a compilation a call, until dynamo gives up and
    runs it eagerly. Told are the guard and the line that assigns what it looks at. Own observation, 2.13 and 2.15.
    """
    with stage("build"):
        model = wrap(subject.build()).to(device).eval()
        watched = wrap(subject.build()).to(device).eval()
    inputs = subject.inputs(device=device)
    with torch.no_grad(), stage("compile"), compiling(model) as (compiled, report):
        for _ in range(CALLS):
            compiled(*inputs)
            report.after.append(len(report.recompiles))
    observe("recompiles", len(report.recompiles), better="lower")
    observe("recompiles_told", "; ".join(report.recompiles) or "none")
    late = report.recompiles[report.after[1] :]
    if late:
        error = AssertionError(f"compiled anew at {len(late)} of {CALLS - 2} further calls with one and the same input: {late[-1]}")
        with torch.no_grad():
            blame_first(error, _lines_of(late[-1], watched, inputs))
        raise error


def _lines_of(guard: str, model: nn.Module, inputs: tuple[Tensor, ...]) -> list[dict[str, Any]]:
    """Where eager code assigns, or adds to, what the guard names; what else forward assigns comes after."""
    with assigned() as lines:
        model(*inputs)
    held = {f"{path}.{name}".lstrip(".") for path, part in model.named_modules() for name in vars(part) if name not in OF_MODULES}
    named = [name for name in sorted(held) if re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", guard)]
    return [lines.line(model, name) for name in (*named, *lines.names(model))]


def train_as_it_is(model: nn.Module) -> nn.Module:
    """The model in training mode."""
    return AsItIs(model).train()


def trains_detached(model: nn.Module) -> nn.Module:
    """A model whose compiled copy has lost its graph, as one that was compiled under no_grad."""
    return model.requires_grad_(False)


@deep
@limits(timeout_s=300.0)
@subjects("gpt")
@catches(trains_detached, wrap=train_as_it_is)
def test_subject_trains_compiled(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject compiled with aot_eager has eager's gradients, for all parameters, on three variations.

    karpathy/nanochat. 2.1 to 2.15.
    """
    model = wrap(subject.build()).to(device)
    names = ("batch2_length7", "shorter", "batch1")
    inputs = {name: subject.inputs(name, device) for name in names}
    check_compiled(model, inputs, observe, backend="aot_eager", backward=True)
    assert all(parameter.requires_grad for parameter in model.parameters())


@deep
@limits(timeout_s=900.0)
@subjects()
@catches(ReportsOnTheWay, wrap=AsItIs)
def test_subject_compiles_with_inductor(wrap: Code, subject: Any, device: torch.device, observe: Observe, stage: Any) -> None:
    """A subject compiled by inductor equals eager code on every variation, without a break.

    karpathy/nanochat; the article on tracing OPT. 2.0 to 2.15.
    """
    model = wrap(subject.build()).to(device).eval()
    with torch.no_grad(), stage("compile"):
        report = check_compiled(model, subject.all_inputs(device), observe, backend="inductor")
    check_whole(report)


def mark_axes(inputs: Any, dynamic: Any) -> Any:
    """Say which axes vary."""
    for tensor, axes in zip(inputs, dynamic):
        for axis in axes:
            torch._dynamo.mark_dynamic(tensor, axis)
    return inputs


def leaves_axes(inputs: Any, dynamic: Any) -> Any:
    """Let the compiler find out."""
    return inputs


@deep
@limits(timeout_s=300.0)
@subjects()
@catches(leaves_axes, declare=mark_axes)
def test_subject_is_one_graph_when_marked(declare: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject whose varying axes are marked dynamic compiles once for all variations of two tokens and more.

    karpathy/nanochat; the article on tracing OPT. 2.1 to 2.15.
    """
    if not hasattr(torch._dynamo, "maybe_mark_dynamic"):
        pytest.skip("mark_dynamic of this torch needs settings of its own")
    model = subject.build().to(device).eval()
    inputs = {name: given for name, given in subject.all_inputs(device).items() if min(given[0].shape) > 1}
    with torch.no_grad(), compiling(model) as (compiled, report):
        for given in inputs.values():
            assert torch.allclose(compiled(*declare(given, subject.dynamic())), model(*given), atol=1e-5)
    observe("graphs", report.graphs, better="lower")
    assert report.graphs == 1


class Block(nn.Module):
    """OPT's attention with its mask helper, its checks of shapes and its outputs of changing length."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.use_cache = True

    def mask(self, x: Tensor, length: int) -> Tensor:
        """Causal `(1, 1, T, T)`."""
        low = torch.finfo(x.dtype).min
        mask = torch.full((length, length), torch.tensor(low), device=x.device) if length > 1 else x.new_zeros(length, length)
        order = torch.arange(mask.size(-1), device=x.device)
        mask.masked_fill_(order < (order + 1).view(mask.size(-1), 1), 0)
        return mask.to(x.dtype)[None, None]

    def forward(self, x: Tensor, keep: Tensor | None = None) -> tuple[Any, ...]:
        """`x` `(B, T, 16)`, `keep` `(B, T)`, 1 where a token is."""
        batch, length, width = x.size()
        q = self.queries(x).view(batch, length, 4, 4).transpose(1, 2).contiguous()
        k = self.keys(x).view(batch, length, 4, 4).transpose(1, 2).contiguous()
        v = self.values(x).view(batch, length, 4, 4).transpose(1, 2).contiguous()
        mask = self.mask(x, length).expand(batch, 1, length, length)
        if keep is not None:
            mask = mask.masked_fill(keep[:, None, None, :] == 0, torch.finfo(x.dtype).min)
        scores = q @ k.transpose(2, 3)
        if scores.size() != (batch, 4, length, length):
            raise ValueError(f"scores are {scores.size()}")
        out = self.out(((scores + mask).softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return (out, (k, v)) if self.use_cache else (out,)


class BlockThatTells(Block):
    """A line about what comes out."""

    def forward(self, x: Tensor, keep: Tensor | None = None) -> tuple[Any, ...]:
        """`x` `(B, T, 16)`, `keep` `(B, T)`, 1 where a token is."""
        out = super().forward(x, keep)
        print("outputs", len(out))
        return out


def _block_inputs(device: torch.device) -> dict[str, Any]:
    sizes = ((1, 7), (1, 5), (2, 9), (3, 4), (2, 1))
    inputs = {f"{b}x{t}": call(uniform((b, t, 16)).to(device)) for b, t in sizes}
    inputs["masked"] = call(uniform((2, 6, 16)).to(device), torch.ones(2, 6, device=device))
    return inputs


@catches(BlockThatTells, build=Block)
def test_opt_block_compiles_whole(build: Code, device: torch.device, observe: Observe) -> None:
    """OPT's attention block compiles without a break over batches, lengths and an optional mask, and equals eager code.

    The article on tracing OPT. 2.2 to 2.15: 4 graphs for 5 shapes, 5 with the mask.
    """
    with torch.no_grad():
        report = check_compiled(fill(build()).to(device).eval(), _block_inputs(device), observe)
    observe("after", ", ".join(map(str, report.after)))
    assert not report.breaks, report.breaks[0]
    assert not report.skipped, report.skipped[0]


def clear_flag(module: Block) -> None:
    """From outside."""
    module.use_cache = False


@catches(replays_first_program, compiled_by=compiling)
def test_opt_block_follows_its_flag(compiled_by: Code, device: torch.device, observe: Observe) -> None:
    """OPT's block whose `use_cache` is switched off between two calls returns what eager code returns.

    The article on tracing OPT, pytorch/pytorch#124717. Since 2.4; on 2.0 to 2.3 the flag is not seen, in silence.
    """
    x = uniform((2, 6, 16)).to(device)
    inputs = {"with_cache": call(x), "without_cache": call(x, before=clear_flag)}
    with torch.no_grad():
        check_compiled(fill(Block()).to(device).eval(), inputs, observe, compiled_by=compiled_by)
