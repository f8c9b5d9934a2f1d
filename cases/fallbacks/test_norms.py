"""Root mean square normalisation: its default epsilon, its gain, its dtype, on releases with a native one and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.guards import rms_norm
from conformance.incell import catches, dtypes, requires, values
from conformance.instruments.float64 import check_close
from conformance.instruments.float64 import rms_norm as reference
from conformance.instruments.weights import uniform

Norm = Callable[..., Tensor]
SMALL = 1e-3
#: What a row of SMALL becomes with float32's epsilon: x / sqrt(x^2 + 1.19e-7).
BY_FLOAT32_EPS = (1 + torch.finfo(torch.float32).eps / SMALL**2) ** -0.5


def native(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """torch's own, by its default epsilon unless one is given."""
    return functional.rms_norm(x, (x.size(-1),), weight, eps)


def formula(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """The fallback that everybody writes: float32 inside, rounded once, gain last."""
    wide = x.float()
    normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
    return normed if weight is None else normed * weight.to(x.dtype)


def takes_eps_of_the_dtype(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The epsilon of bfloat16 is 0.008: more than small activations squared."""
    return formula(x, weight, torch.finfo(x.dtype).eps if eps is None else eps)


def takes_eps_of_float32(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The epsilon of the dtype that the formula computes in."""
    return formula(x, weight, torch.finfo(torch.float32).eps if eps is None else eps)


def does_nothing(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """A placeholder for what is missing: right for inputs of size 1, as tests often have."""
    return x * 1.0 if weight is None else x * weight.to(x.dtype)


def _small_row(device: torch.device) -> Tensor:
    return torch.full((1, 32), SMALL, device=device, dtype=torch.bfloat16)


def _check_default_eps(norm: Norm, device: torch.device, observe: Callable[..., None]) -> None:
    got = float(norm(_small_row(device))[0, 0])
    observe("row_of_0.001", got)
    assert got == pytest.approx(BY_FLOAT32_EPS, rel=0.01)


@values
@catches(takes_eps_of_the_dtype, does_nothing, norm=rms_norm)
def test_rms_norm_default_eps(norm: Norm, device: torch.device, observe: Callable[..., None]) -> None:
    """Without an epsilon a bfloat16 row is normalised with that of float32, on every release.

    pytorch/pytorch#189581, pytorch/pytorch#173039, pytorch/pytorch#142848. 1.13 to 2.15.
    """
    _check_default_eps(norm, device, observe)


@values
@requires("torch.nn.functional.rms_norm")
@catches(takes_eps_of_the_dtype, norm=native)
def test_rms_norm_default_eps_native(norm: Norm, device: torch.device, observe: Callable[..., None]) -> None:
    """`F.rms_norm` without an epsilon normalises a bfloat16 row with that of float32.

    pytorch/pytorch#142848, pytorch/pytorch#157223. bfloat16's own epsilon, which makes .011 of what should be .945, from 2.4 to
    2.6; right since 2.7.
    """
    _check_default_eps(norm, device, observe)


@values
@pytest.mark.parametrize("norm", [takes_eps_of_the_dtype, takes_eps_of_float32], ids=["dtype_eps", "float32_eps"])
def test_rms_norm_fallback_agrees_native(norm: Norm, device: torch.device) -> None:
    """A fallback's default epsilon is that of this very release's `F.rms_norm`, or of later ones where there is none yet.

    pytorch/pytorch#189581: neither fallback is right everywhere. dtype_eps agrees from 2.4 to 2.6 alone, float32_eps everywhere else.
    """
    expected = float(native(_small_row(device))[0, 0]) if hasattr(functional, "rms_norm") else BY_FLOAT32_EPS
    assert float(norm(_small_row(device))[0, 0]) == pytest.approx(expected, rel=0.01)


def adds_eps_to_the_root(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Epsilon outside of the root: it is squared in effect."""
    return (x.float() / (x.float().pow(2).mean(-1, keepdim=True).sqrt() + eps)).to(x.dtype)


@values
@requires("torch.nn.functional.rms_norm")
@dtypes("float32", "bfloat16", "float16")
@catches(does_nothing, adds_eps_to_the_root, norm=native)
def test_rms_norm_explicit_eps_native(norm: Norm, dtype: torch.dtype, device: torch.device) -> None:
    """`F.rms_norm` of small activations with an epsilon of its caller's is the formula in float64.

    pytorch/pytorch#189581: the idiom that is right in float32 and bfloat16 on every release that has it, 2.4 to 2.15. Observed
    here: float16 is squared in float16 until 2.6, where squares of .001 vanish.
    """
    x = (uniform((4, 32), "x") * SMALL).to(device, dtype)
    check_close(norm(x, None, 1e-6), reference(x, None, 1e-6))


def keeps_weight_dtype(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The gain multiplied as it is: the answer is float32, and so is all that follows."""
    return rms_norm(x, None, eps) * (1.0 if weight is None else weight)


def _check_weight_dtype(norm: Norm, device: torch.device) -> None:
    assert norm(torch.ones(1, 8, device=device, dtype=torch.bfloat16), torch.ones(8, device=device)).dtype == torch.bfloat16


@catches(keeps_weight_dtype, norm=rms_norm)
def test_rms_norm_keeps_dtype(norm: Norm, device: torch.device) -> None:
    """A bfloat16 input beside a float32 gain gives bfloat16, on every release.

    pytorch/pytorch#142848 changed the native one. 1.13 to 2.15.
    """
    _check_weight_dtype(norm, device)


@requires("torch.nn.functional.rms_norm")
@catches(keeps_weight_dtype, norm=native)
def test_rms_norm_keeps_dtype_native(norm: Norm, device: torch.device) -> None:
    """`F.rms_norm` of a bfloat16 input beside a float32 gain gives bfloat16.

    Observed here: float32 from 2.4 to 2.6, bfloat16 since 2.7.
    """
    _check_weight_dtype(norm, device)


def squares_in_float16(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The formula in the input's dtype: 300 squared is infinity."""
    scale = torch.rsqrt((x * x).float().mean(-1, keepdim=True) + (eps or 1e-6)).to(x.dtype)
    return x * scale


def _check_large(norm: Norm, device: torch.device) -> None:
    x = torch.full((1, 8), 300.0, device=device, dtype=torch.float16)
    assert float(norm(x, None, 1e-6)[0, 0]) == pytest.approx(1.0, abs=2e-3)


@values
@catches(squares_in_float16, norm=rms_norm)
def test_rms_norm_large_float16(norm: Norm, device: torch.device) -> None:
    """Activations of 300 in float16 normalise to 1: squares are taken in float32.

    Observed here: the native one of 2.4 gives 0. 1.13 to 2.15.
    """
    _check_large(norm, device)


@values
@requires("torch.nn.functional.rms_norm")
@catches(squares_in_float16, norm=native)
def test_rms_norm_large_float16_native(norm: Norm, device: torch.device) -> None:
    """`F.rms_norm` of activations of 300 in float16 gives 1.

    Observed here on the CPU: 0 on 2.4 and 2.5, right since 2.6.
    """
    _check_large(norm, device)


def gain_before_rounding(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The guard."""
    return rms_norm(x, weight, eps)


def adds_one_to_gain(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Another family's convention: the stored gain is the offset from 1."""
    return rms_norm(x, None if weight is None else weight + 1, eps)


def centres(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Layer normalisation: it takes the mean off."""
    gain = None if weight is None else weight.float()
    return functional.layer_norm(x.float(), (x.size(-1),), gain, None, 1e-6 if eps is None else eps).to(x.dtype)


@values
@dtypes("float32", "bfloat16", "float16")
@catches(adds_one_to_gain, centres, does_nothing, norm=gain_before_rounding)
def test_rms_norm_numbers(norm: Norm, dtype: torch.dtype, device: torch.device) -> None:
    """The guard is the formula in float64, gain included, whichever way it goes.

    pytorch/pytorch#142848. Native since 2.7. 1.13 to 2.15.
    """
    x, gain = (uniform((4, 32), "x") + 0.3).to(device, dtype), (uniform((32,), "gain") + 2.0).to(device, dtype)
    check_close(norm(x, gain, 1e-5), reference(x, gain, 1e-5))


class Normed(nn.Module):
    """The guard as a module, with torch's names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return rms_norm(x, self.weight, 1e-6)


class Renamed(Normed):
    """The parameter under another name: a checkpoint loads with strict=False, and the gain stays 1."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale, self.weight = self.weight, None  # type: ignore[assignment]


class Centred(nn.LayerNorm):
    """The norm that every release has: its gain has the same name, and its mean comes off."""


@values
@requires("torch.nn.RMSNorm")
@catches(Renamed, Centred, module=Normed)
def test_rms_norm_module_takes_checkpoint(module: type[nn.Module], device: torch.device) -> None:
    """A state dict of `nn.RMSNorm` goes into the fallback module, and both answer alike.

    torch documentation: `nn.RMSNorm` since 2.4, its one parameter `weight`.
    """
    native_module, fallback = nn.RMSNorm(16, eps=1e-6).to(device), module(16).to(device)
    with torch.no_grad():
        native_module.weight.copy_(uniform((16,), "gain"))
    fallback.load_state_dict(native_module.state_dict(), strict=False)
    x = uniform((3, 16), "x").to(device)
    torch.testing.assert_close(fallback(x), native_module(x))
