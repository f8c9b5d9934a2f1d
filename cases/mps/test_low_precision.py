"""What low precision cannot hold: masks of a billion, small eps, large positions, pixels out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import range_like
from conformance.incell import catches, dtypes, values
from conformance.incell.marks import Twin
from conformance.instruments.weights import uniform

Idiom = Callable[..., Tensor]


def standardise_in_float32(x: Tensor) -> Tensor:
    """Eps is no zero there."""
    wide = x.float()
    return ((wide - wide.mean()) / (wide.var(unbiased=False).sqrt() + 1e-8)).to(x.dtype)


def standardises_with_vanished_eps(x: Tensor) -> Tensor:
    """1e-8 in float16 is zero."""
    wide = x.float()
    deviation = wide.var(unbiased=False).sqrt().to(x.dtype)
    eps = torch.full((), 1e-8, device=x.device).to(x.dtype)
    return ((wide - wide.mean()).to(x.dtype).float() / (deviation.float() + eps.float())).to(x.dtype)


@values
@dtypes("float16")
@catches(standardises_with_vanished_eps, standardise=standardise_in_float32)
def test_constant_row_is_standardised(standardise: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """A row of equal float16 numbers is standardised to zeros, not to NaN.

    Observed on 1.13 to 2.15: the smallest float16 number is 6e-8, an eps below half of that is zero.
    """
    assert standardise(torch.full((4,), 0.5, dtype=dtype, device=device)).tolist() == [0.0] * 4


def count_in_integers(x: Tensor, length: int) -> Tensor:
    """Integers, then float32."""
    return range_like(x, length, torch.float32)


def counts_in_low_precision(x: Tensor, length: int) -> Tensor:
    """Neighbours are rounded to one number."""
    return torch.arange(length, dtype=torch.bfloat16, device=x.device).float()


@values
@catches(counts_in_low_precision, positions=count_in_integers)
def test_positions_are_distinct(positions: Idiom, device: torch.device) -> None:
    """Six hundred positions are six hundred numbers.

    pytorch/pytorch#141655: in bfloat16 they collide from 256 on. Guard `range_like`, 1.13 to 2.15.
    """
    assert positions(torch.empty(0, device=device), 600).cpu().unique().numel() == 600


def clamp_then_cast(x: Tensor) -> Tensor:
    """Into the range first."""
    return x.clamp(0.0, 255.0).to(torch.uint8)


def casts_and_wraps(x: Tensor) -> Tensor:
    """What lies outside becomes what the CPU makes of it."""
    return x.to(torch.uint8)


@values
@dtypes("float32", "bfloat16")
@catches(casts_and_wraps, cast=clamp_then_cast)
def test_pixels_are_clamped_before_the_cast(cast: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """Pixels a little out of range become black or white.

    Observed on x86-64, 1.13 to 2.15: 260 becomes 4, in silence; the result of such a cast is left open and differs by CPU.
    """
    x = torch.tensor([-2.0, 128.0, 260.0], device=device).to(dtype)
    assert cast(x).tolist() == [0, 128, 255]


def log_in_float32(x: Tensor) -> Tensor:
    """The floor holds there."""
    return x.float().clamp(min=1e-10).log()


def logs_with_vanished_floor(x: Tensor) -> Tensor:
    """The floor is zero in float16."""
    return (x + torch.full((), 1e-10, device=x.device).to(x.dtype)).float().log()


@values
@dtypes("float16")
@catches(logs_with_vanished_floor, log=log_in_float32)
def test_log_of_zero_is_floored(log: Idiom, device: torch.device, dtype: torch.dtype) -> None:
    """The log of a probability of zero, with a floor of 1e-10, is finite.

    Observed on 1.13 to 2.15: in float16 the floor is zero, and the log -inf.
    """
    assert float(log(torch.zeros((), dtype=dtype, device=device))) == pytest.approx(-23.0258, abs=1e-3)


def widen_for_numpy(x: Tensor) -> Any:
    """numpy knows float32."""
    return x.detach().cpu().float().numpy()


def gives_numpy_bfloat16(x: Tensor) -> Any:
    """numpy knows no bfloat16."""
    return x.detach().cpu().numpy()


@values
@catches(Twin(gives_numpy_bfloat16, "raises"), export=widen_for_numpy)
def test_bfloat16_reaches_numpy(export: Callable[[Tensor], Any], device: torch.device) -> None:
    """bfloat16 activations reach numpy through float32.

    Observed on 1.13 to 2.15: TypeError without the cast.
    """
    pytest.importorskip("numpy")
    assert export(torch.ones(2, dtype=torch.bfloat16, device=device)).tolist() == [1.0, 1.0]


def autocast_this_device(a: Tensor, b: Tensor) -> Tensor:
    """The type of the tensors' own device."""
    with torch.autocast(a.device.type, dtype=torch.bfloat16):
        return a @ b


def autocasts_another_device(a: Tensor, b: Tensor) -> Tensor:
    """A device type written into the code: nothing is cast here."""
    with torch.autocast("cuda" if a.device.type == "cpu" else "cpu"):
        return a @ b


@values
@pytest.mark.filterwarnings("ignore::UserWarning")
@catches(autocasts_another_device, multiply=autocast_this_device)
def test_autocast_is_of_this_device(multiply: Idiom, device: torch.device) -> None:
    """A matrix product under autocast is in bfloat16 on the device at hand.

    Observed on 1.13 to 2.15: `autocast("cuda")` on a host without CUDA warns and casts nothing.
    """
    a = torch.ones(4, 4, device=device)
    assert multiply(a, a).dtype == torch.bfloat16


def hide_by_lowest(scores: Tensor, hidden: Tensor) -> Tensor:
    """Fill with the lowest number of the dtype."""
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)


def hides_by_adding_a_billion(scores: Tensor, hidden: Tensor) -> Tensor:
    """BERT's mask: in float16 a billion is infinity."""
    return scores + hidden.to(scores.dtype) * -1e9


def hides_by_float32_lowest(scores: Tensor, hidden: Tensor) -> Tensor:
    """The lowest number of another dtype."""
    return scores.masked_fill(hidden, torch.finfo(torch.float32).min)


@values
@catches(hides_by_adding_a_billion, Twin(hides_by_float32_lowest, "raises"), hide=hide_by_lowest)
def test_mask_stays_finite_in_float16(hide: Callable[..., Tensor], device: torch.device) -> None:
    """A row of float16 scores that is all hidden stays finite, so that its softmax is no NaN.

    pytorch/pytorch#41508. Observed on 1.13 to 2.15: `+ -1e9` gives -inf in silence, `masked_fill` with it raises.
    """
    hidden = torch.tensor([[True, True], [False, True]], device=device)
    masked = hide(uniform((2, 2)).to(device, torch.float16), hidden).float()
    assert bool(masked.isfinite().all())
    assert bool(masked.softmax(-1).isfinite().all())


def hide_either(scores: Tensor, causal: Tensor, padding: Tensor) -> Tensor:
    """Combine the masks, then fill once."""
    return scores.masked_fill(causal | padding, torch.finfo(scores.dtype).min)


def adds_two_masks(scores: Tensor, causal: Tensor, padding: Tensor) -> Tensor:
    """Twice the lowest number is infinity."""
    lowest = torch.finfo(scores.dtype).min
    return scores + causal.to(scores.dtype) * lowest + padding.to(scores.dtype) * lowest


@values
@dtypes("float32", "bfloat16", "float16")
@catches(adds_two_masks, hide=hide_either)
def test_masks_combine_finitely(hide: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Scores hidden by a causal and by a padding mask are finite in each dtype.

    pytorch/pytorch#41508: two additive masks of the lowest number overflow where they meet. 1.13 to 2.15.
    """
    causal = torch.ones(3, 3, device=device).triu(1).bool()
    padding = torch.tensor([False, True, True], device=device)
    assert bool(hide(torch.zeros(3, 3, dtype=dtype, device=device), causal, padding).isfinite().all())
