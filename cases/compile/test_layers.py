"""Parts of models under torch.compile: norms, rotary positions, numpy, einops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.guards import rms_norm
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.bits import same_bits
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


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


@contextmanager
def widens_result(code: Code, **options: Any) -> Any:
    """numpy's own float, which is double."""
    yield lambda x: code(x).double() if isinstance(code(x), Tensor) else code(x) * 1.0, Report()


@pytest.mark.parametrize("form", NUMPY)
@catches(widens_result, compiled_by=compiling)
def test_numpy_round_trip(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A way through numpy and back gives eager's numbers and dtypes.

    pytorch/pytorch#109604, pytorch/pytorch#105052, pytorch/pytorch#95849. 2.1 to 2.15 in one graph,
    random numbers since 2.2; on 2.0 by breaks, but for a sine, which raises.
    """
    pytest.importorskip("numpy")
    if device.type != "cpu":
        pytest.skip("numpy reads the CPU's memory")
    code, x = NUMPY[form], uniform((3,)) * 3
    with compiled_by(code) as (compiled, report):
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
    assert same_bits(rearrange(x), x.view(2, 3, 2, 4).transpose(1, 2) * 2)
