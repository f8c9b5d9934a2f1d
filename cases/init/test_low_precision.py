"""Initialisation in bfloat16 and float16: what the kernels get wrong, and the draw in float32 that is right everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from conformance.incell import catches, dtypes, values
from conformance.incell.marks import Twin

Draw = Callable[[torch.Tensor], torch.Tensor]
STD, BOUND = 0.01, 2.0


@torch.no_grad()
def draw_in_float32_and_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Draw in float32, then round."""
    return tensor.copy_(nn.init.trunc_normal_(torch.empty(tensor.shape, device=tensor.device), std=STD))


def fill_natively(tensor: torch.Tensor) -> torch.Tensor:
    """Let torch draw in the tensor's own dtype."""
    return nn.init.trunc_normal_(tensor, std=STD)


def rounds_the_uniform_before_its_inverse(tensor: torch.Tensor) -> torch.Tensor:
    """The algorithm that the low-precision kernels had: a uniform that rounds to 1 becomes infinity, and is clamped to the bound."""
    uniform = torch.empty(tensor.shape, device=tensor.device).uniform_(-1.0, 1.0).to(tensor.dtype).float()
    return tensor.copy_((torch.erfinv(uniform) * (STD * 2.0**0.5)).clamp_(-BOUND, BOUND))


def _check_trunc_normal(draw: Draw, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]) -> None:
    tensor = torch.empty(100, 1000, dtype=dtype, device=device)
    try:
        draw(tensor)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        pytest.skip(str(error).splitlines()[0])
    stuck = int((tensor.abs() == BOUND).sum())
    spread = float(tensor.float().std())
    observe("at_bound", stuck, better="lower")
    observe("std", round(spread, 4))
    assert stuck == 0
    assert 0.95 * STD < spread < 1.05 * STD


@values
@dtypes("bfloat16", "float16")
@catches(rounds_the_uniform_before_its_inverse, draw=draw_in_float32_and_copy)
def test_trunc_normal_through_float32(draw: Draw, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]) -> None:
    """A truncated normal drawn in float32 and copied has its spread, and no value on the bound, in low precision too.

    pytorch/pytorch#145498, pytorch/torchtitan#2269, pytorch/torchtitan#2521. Holds on 1.13 to 2.15.
    """
    _check_trunc_normal(draw, device, dtype, observe)


@values
@dtypes("bfloat16", "float16")
@catches(rounds_the_uniform_before_its_inverse, draw=fill_natively)
def test_trunc_normal_native(draw: Draw, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]) -> None:
    """`trunc_normal_` on a low-precision tensor has its spread and no value on the bound.

    pytorch/pytorch#145498, huggingface/transformers#21789, fixed by pytorch/pytorch#174997 in 2.12. Until 2.11 it parks values
    on the bound (std .127 for .01 in bfloat16); float16 has no kernel on the CPU until 2.0.
    """
    _check_trunc_normal(draw, device, dtype, observe)


@torch.no_grad()
def orthogonalise_in_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Decompose in float32, then round."""
    return tensor.copy_(nn.init.orthogonal_(torch.empty(tensor.shape, device=tensor.device)))


def orthogonalises_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """Ask for a QR decomposition in low precision."""
    return nn.init.orthogonal_(tensor)


def normalises_rows_only(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of length 1, not orthogonal to each other."""
    rows = torch.randn(tensor.shape, device=tensor.device)
    return tensor.copy_(rows / rows.norm(dim=1, keepdim=True))


@values
@dtypes("bfloat16", "float16")
@catches(Twin(orthogonalises_in_place, "raises"), normalises_rows_only, draw=orthogonalise_in_float32)
def test_orthogonal_through_float32(draw: Draw, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]) -> None:
    """An orthogonal matrix made in float32 and copied is orthogonal within low precision's rounding.

    huggingface/transformers#47225, pytorch/pytorch#9315: there is no QR kernel for low precision, on 1.13 to 2.15; the error
    became a NotImplementedError in 2.8.
    """
    matrix = draw(torch.empty(16, 16, dtype=dtype, device=device)).float()
    error = float((matrix @ matrix.t() - torch.eye(16, device=device)).abs().max())
    observe("error", round(error, 4))
    assert error < 0.02


COUNT = 1 << 20


def draw_normal(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Draw normals in the dtype asked for."""
    return torch.randn(COUNT, device=device, dtype=dtype)


def draw_normal_in_float32(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Draw normals in float32, then round."""
    return torch.randn(COUNT, device=device).to(dtype)


def transforms_eight_bit_uniforms(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Box and Muller's transform of uniforms with 8 bits: the radius ends at sqrt(-2 ln 2**-8) = 3.33."""
    radius = (torch.randint(1, 257, (COUNT,), device=device) / 256.0).log().mul(-2.0).sqrt()
    angle = torch.rand(COUNT, device=device) * (2.0 * torch.pi)
    return (radius * angle.cos()).to(dtype)


def _check_tail(drawn: torch.Tensor, observe: Callable[..., None]) -> None:
    largest = float(drawn.abs().max())
    observe("largest", largest)
    assert 4.0 < largest < 6.5


@values
@dtypes("bfloat16", "float16")
@catches(transforms_eight_bit_uniforms, draw=draw_normal_in_float32)
def test_normal_tail_through_float32(
    draw: Callable[..., torch.Tensor], device: torch.device, dtype: torch.dtype, observe: Callable[..., None]
) -> None:
    """A million normals drawn in float32 and rounded reach beyond 4 standard deviations, as a normal must.

    pytorch/pytorch#166853. Holds on 1.13 to 2.15.
    """
    _check_tail(draw(device, dtype), observe)


@values
@dtypes("float32", "bfloat16")
@catches(transforms_eight_bit_uniforms, draw=draw_normal)
def test_normal_tail_native(
    draw: Callable[..., torch.Tensor], device: torch.device, dtype: torch.dtype, observe: Callable[..., None]
) -> None:
    """A million normals drawn by `randn` reach beyond 4 standard deviations.

    pytorch/pytorch#166853: on the CPU bfloat16 ends at 3.328 until 2.11 and is right since 2.12.
    """
    _check_tail(draw(device, dtype), observe)


def draw_uniform(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Draw uniforms in the dtype asked for."""
    return torch.empty(1 << 17, device=device, dtype=dtype).uniform_(0.0, 1.0)


def rounds_float32_uniforms(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Draw uniforms in float32, then round: those next to 1 become 1."""
    return torch.rand(1 << 17, device=device).to(dtype)


@values
@dtypes("bfloat16", "float16")
@catches(rounds_float32_uniforms, draw=draw_uniform)
def test_uniform_stays_below_its_bound(
    draw: Callable[..., torch.Tensor], device: torch.device, dtype: torch.dtype, observe: Callable[..., None]
) -> None:
    """`uniform_(0, 1)` in low precision never gives 1: its interval is half open.

    pytorch/pytorch#145498 (why a truncated normal reached its bound). A uniform rounded from float32 does give 1.
    """
    drawn = draw(device, dtype)
    observe("at_bound", int((drawn == 1).sum()), better="lower")
    assert bool((drawn >= 0).all())
    assert bool((drawn < 1).all())
