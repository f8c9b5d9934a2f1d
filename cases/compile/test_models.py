"""Whole models and their parts under torch.compile: the built-in subjects, OPT's block, norms, rotary positions, numpy, einops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.guards import is_compiling, rms_norm
from conformance.incell import catches, deep, limits, requires, subjects, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.compilation import call, check_compiled, compiling
from conformance.instruments.models import check_whole
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class AsItIs(nn.Module):
    """The model, untouched."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        return self.model(*inputs)


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

    karpathy/nanochat; the article on tracing OPT. 2.0 to 2.15. The first three variations; at `--depth deep` all.
    """
    with stage("build"):
        model = wrap(subject.build()).to(device).eval()
    inputs = dict(list(subject.all_inputs(device).items())[: None if depth == "deep" else 3])
    with torch.no_grad(), stage("compile"):
        report = check_compiled(model, inputs, observe)
    check_whole(report)


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


class BlockWithItem(Block):
    """The mask filled with a number that comes out of a tensor."""

    def mask(self, x: Tensor, length: int) -> Tensor:
        """Causal `(1, 1, T, T)`."""
        return super().mask(x, length) * torch.ones((), device=x.device).item()


def _block_inputs(device: torch.device) -> dict[str, Any]:
    sizes = ((1, 7), (1, 5), (2, 9), (3, 4), (2, 1))
    inputs = {f"{b}x{t}": call(uniform((b, t, 16)).to(device)) for b, t in sizes}
    inputs["masked"] = call(uniform((2, 6, 16)).to(device), torch.ones(2, 6, device=device))
    return inputs


@catches(BlockWithItem, build=Block)
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

    The article on tracing OPT, pytorch/pytorch#124717. Since 2.4; until 2.3 the flag is not seen, in silence.
    """
    inputs = {**_block_inputs(device), "without_cache": call(uniform((2, 6, 16)).to(device), before=clear_flag)}
    with torch.no_grad():
        check_compiled(fill(Block()).to(device).eval(), inputs, observe, compiled_by=compiled_by)


def norm_by_guard(x: Tensor) -> Tensor:
    """Chosen at import."""
    return rms_norm(x)


def norm_scaled_by_one(x: Tensor) -> Tensor:
    """A fallback that does nothing."""
    return x * 1.0


def norm_natively(x: Tensor) -> Tensor:
    """Without a fallback."""
    return functional.rms_norm(x, (x.size(-1),))


def _check_norm(norm: Code, device: torch.device, observe: Observe) -> None:
    x = uniform((2, 4)).to(device)
    expected = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)
    with compiling(lambda x: norm(x) * 2, fullgraph=True) as (compiled, report):
        assert torch.allclose(compiled(x), expected * 2, atol=1e-6)
    observe("graphs", report.graphs, better="lower")
    assert report.graphs == 1


@catches(norm_scaled_by_one, norm=norm_by_guard)
def test_norm_by_guard_is_whole(norm: Code, device: torch.device, observe: Observe) -> None:
    """The guard rms_norm compiles to one graph, with the formula's numbers.

    comfyanonymous/ComfyUI#8095; karpathy/nanochat. 2.0 to 2.15.
    """
    _check_norm(norm, device, observe)


@catches(norm_scaled_by_one, norm=norm_natively)
def test_norm_native_is_whole(norm: Code, device: torch.device, observe: Observe) -> None:
    """`functional.rms_norm` compiles to one graph, with the formula's numbers.

    comfyanonymous/ComfyUI#8095. Since 2.4; before, the missing name is an internal error of the compiler.
    """
    _check_norm(norm, device, observe)


def rotate_complex(q: Tensor, turns: Tensor) -> Tensor:
    """`q` `(B, T, H, 8)` as complex pairs, turned by the first T of `turns`."""
    pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[: q.shape[1]][None, :, None]).flatten(3).type_as(q)


def rotates_by_last(q: Tensor, turns: Tensor) -> Tensor:
    """Turned by the last T."""
    return rotate_complex(q, turns[turns.size(0) - q.shape[1] :])


def turned_by_real(q: Tensor, turns: Tensor) -> Tensor:
    """The same in real numbers."""
    first, second = q[..., 0::2], q[..., 1::2]
    cos, sin = turns.real[: q.shape[1]][None, :, None], turns.imag[: q.shape[1]][None, :, None]
    return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(3)


@requires("complex64")
@catches(rotates_by_last, rotate=rotate_complex)
def test_complex_rotation_is_whole(rotate: Code, device: torch.device, observe: Observe) -> None:
    """Rotary positions by complex numbers are one graph for a length and one for all others, with the right numbers and gradients.

    pytorch/pytorch#97562, pytorch/torchtitan#15, huggingface/diffusers#12668. 2.1 to 2.15 (eager, aot_eager).
    """
    turns = torch.polar(torch.ones(16, 4), torch.outer(torch.arange(16.0), 1.0 / 100 ** (torch.arange(4) / 4))).to(device)
    inputs = [uniform((2, t, 3, 8)).to(device).requires_grad_() for t in (5, 9, 12)]
    for backend in ("eager", "aot_eager"):
        with compiling(rotate, backend, fullgraph=True) as (compiled, report):
            for q in inputs:
                got, expected = compiled(q, turns), turned_by_real(q, turns)
                assert torch.allclose(got, expected, atol=1e-6)
                gradients = [torch.autograd.grad(out.pow(3).sum(), q)[0] for out in (got, expected)]
                assert torch.allclose(*gradients, atol=1e-5)
        observe(f"graphs_{backend}", report.graphs, better="lower")
        assert report.graphs == 2


def _numpy_sine(x: Tensor) -> Tensor:
    import numpy

    return torch.from_numpy(numpy.sin(x.numpy()) * 2)


def _numpy_int(x: Tensor) -> Any:
    return x.numpy().astype(int)


def _numpy_scalar(x: Tensor) -> Tensor:
    import numpy

    return x + numpy.arange(3, dtype=numpy.float32)[1]


def _numpy_random(x: Tensor) -> Tensor:
    import numpy

    numpy.random.seed(0)
    return x + float(numpy.random.rand())


NUMPY: dict[str, Code] = {"sine": _numpy_sine, "as_int": _numpy_int, "scalar": _numpy_scalar, "random": _numpy_random}


@pytest.mark.parametrize("form", NUMPY)
@catches(Twin(lambda code: lambda x: code(x).double() if isinstance(code(x), Tensor) else code(x) * 1.0, "wrong"), keep=lambda code: code)
def test_numpy_round_trip(keep: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A way through numpy and back gives eager's numbers and dtypes.

    pytorch/pytorch#109604, pytorch/pytorch#105052, pytorch/pytorch#95849. 2.1 to 2.15 in one graph; on 2.0 by breaks.
    """
    pytest.importorskip("numpy")
    if device.type != "cpu":
        pytest.skip("numpy reads the CPU's memory")
    code, x = NUMPY[form], uniform((3,)) * 3
    with compiling(keep(code)) as (compiled, report):
        got, expected = compiled(x), code(x)
    observe("graphs", report.graphs, better="lower")
    observe("breaks", len(report.breaks) + len(report.skipped), better="lower")
    assert (type(got), got.dtype) == (type(expected), expected.dtype)
    assert got.tolist() == pytest.approx(expected.tolist())


def rearrange_by_einops(x: Tensor) -> Tensor:
    """`(B, T, H * D)` to `(B, H, T, D)` by name."""
    from einops import rearrange

    result: Tensor = rearrange(x, "b t (h d) -> b h t d", h=2)
    return result * 2


def rearranges_by_view(x: Tensor) -> Tensor:
    """The axes in the wrong order."""
    return x.reshape(x.size(0), 2, x.size(1), -1) * 2


@requires("einops")
@catches(rearranges_by_view, rearrange=rearrange_by_einops)
def test_einops_keeps_axes(rearrange: Code, device: torch.device, observe: Observe) -> None:
    """einops.rearrange inside compiled code follows batch and length; its breaks are observed.

    arogozhnikov/einops; pytorch/pytorch#124717. 2.0 to 2.15.
    """
    inputs = {f"{b}x{t}": (uniform((b, t, 8)).to(device),) for b, t in ((2, 3), (2, 5), (4, 6))}
    check_compiled(rearrange, inputs, observe)
    x = inputs["2x3"][0]
    assert torch.equal(rearrange(x), x.view(2, 3, 2, 4).transpose(1, 2) * 2)


def ask_the_guard(x: Tensor) -> Tensor:
    """By the guard is_compiling."""
    return x + 1 if is_compiling() else x + 2


def asks_the_tracer(x: Tensor) -> Tensor:
    """Another capture's flag."""
    return x + 1 if torch.jit.is_tracing() else x + 2


@catches(asks_the_tracer, ask=ask_the_guard)
def test_capture_is_known_inside(ask: Code, device: torch.device, observe: Observe) -> None:
    """The guard is_compiling is True inside compiled code and False in eager code, without a break.

    pytorch/pytorch#132635. 2.0 to 2.15; torch.compiler.is_compiling from 2.1.
    """
    x = torch.zeros(2, device=device)
    with compiling(ask) as (compiled, report):
        assert (compiled(x).tolist(), ask(x).tolist()) == ([1.0, 1.0], [2.0, 2.0])
    observe("breaks", len(report.breaks), better="lower")
    assert not report.breaks


def _refuse_odd(x: Tensor, n: int) -> Tensor:
    if n % 2:
        raise LookupError(f"{n} is odd")
    return x + n


def _index(x: Tensor, n: int) -> Tensor:
    return x[n] * 2


def _shapes(x: Tensor, n: int) -> Tensor:
    return x + torch.ones(n, device=x.device)


def _key(x: Tensor, n: int) -> Tensor:
    return x * {2: 1.0}[n]


def _division(x: Tensor, n: int) -> Tensor:
    return x * (1 // (n - 5))


RAISING: dict[str, tuple[Code, tuple[int, int]]] = {
    "own_error": (_refuse_odd, (2, 5)),
    "index": (_index, (2, 5)),
    "shape": (_shapes, (3, 5)),
    "key": (_key, (2, 5)),
    "division": (_division, (2, 5)),
}


@pytest.mark.parametrize("form", RAISING)
@catches(replays_first_program, compiled_by=compiling)
def test_error_keeps_its_class(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """What eager code raises on bad arguments compiled code raises too, of the same class.

    pytorch/pytorch#184364, pytorch/pytorch#184340. Errors that Python raises: 2.0 to 2.15; errors of operations are wrapped.
    """
    code, (good, bad) = RAISING[form]
    x = uniform((3,)).to(device)
    check_compiled(code, {"good": (x, good), "bad": (x, bad)}, observe, compiled_by=compiled_by)
