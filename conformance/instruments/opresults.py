"""Results of one op, held against what float64 gives on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

#: dtype -> how far a result may be off, in parts of the expected number, of the largest expected number, and of FLOOR.
#:
#: The unit roundoff is 6e-8 in float32, 4.9e-4 in float16, 3.9e-3 in bfloat16. OpInfo's samples sum up to some hundred terms and nest
#: some ten ops, each of which rounds: 2e-4 is 3,000 roundoffs, enough for a kernel that sums naively. In the half formats kernels sum in
#: float32 and round once or twice: ten roundoffs. The faults that this looks for are off by a percent and more.
TOLERANCE = {
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
    torch.float32: 2e-4,
    torch.complex32: 5e-3,
    torch.complex64: 2e-4,
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
}
#: Inputs are of the order of one: what cancels to nothing (a singular determinant) comes out as their rounding.
FLOOR = 0.01
#: How much farther off than the CPU in the same dtype another device may be: it may round in another order.
_SLACK = 4.0


def leaves(result: Any) -> list[Tensor]:
    """The tensors of a result in order; numbers count as tensors without dimensions."""
    flat = [each for leaf in tree_flatten(result)[0] for each in (leaf if isinstance(leaf, tuple) else (leaf,))]  # 1.13: named results
    return [
        leaf if isinstance(leaf, Tensor) else torch.tensor(leaf) for leaf in flat if isinstance(leaf, (Tensor, bool, int, float, complex))
    ]


def form_off(got: list[Tensor], expected: list[Tensor], device: str) -> str:
    """How results differ in number, shape, dtype or place (on meta in strides too) from the CPU's; empty where they agree."""
    if len(got) != len(expected):
        return f"{len(got)} results, not {len(expected)}"
    for mine, cpu in zip(got, expected):
        if mine.shape != cpu.shape or mine.dtype != cpu.dtype:
            return f"a {mine.dtype} tensor of shape {list(mine.shape)}, not a {cpu.dtype} one of {list(cpu.shape)}".replace("torch.", "")
        if mine.layout is not cpu.layout:
            return f"layout {mine.layout}, not {cpu.layout}"
        if device == "meta" and mine.layout is torch.strided and _strides(mine) != _strides(cpu):
            return f"strides {list(mine.stride())}, not {list(cpu.stride())}"
    return ""


def _strides(x: Tensor) -> list[int]:
    """Strides of the dimensions in which there is more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1 and x.numel()]


def coarsest(arguments: Sequence[Tensor]) -> float:
    """The tolerance of the coarsest float among them; 0 where there is none."""
    return max((TOLERANCE[x.dtype] for x in arguments if x.dtype in TOLERANCE), default=0.0)


def numbers_off(got: Tensor, wide: Tensor, same: Tensor, coarse: float = 0.0) -> str:
    """How a result differs from `wide`, the CPU's in float64, and `same`, the CPU's in its own dtype; empty where it does not.

    `coarse`: the tolerance of the coarsest argument, whose rounding the result may have (float64 beside float32 weights).
    Whole numbers and truth values must be one of the two. Elsewhere than on the CPU a float may be off by a few times what the CPU is.
    """
    foreign = got.device.type != "cpu"
    got, wide, same = (_dense(x) for x in (got, wide, same))
    if not got.numel():
        return ""
    if not (got.is_floating_point() or got.is_complex()):
        right = (got == wide) | (got == same) if wide.shape == same.shape else got == same
        return "" if bool(right.all()) else _told(got, wide, ~right)
    tolerance = max(TOLERANCE[got.dtype], coarse)
    if got.is_complex():
        wide = wide.to(torch.complex128)
        got, wide, same = (torch.view_as_real(x.to(torch.complex128)) for x in (got, wide.to(got.dtype), same))
    else:
        got, wide, same = (x.double() for x in (got, wide.to(got.dtype), same))  # what overflows in the dtype is infinite there
    finite = wide.isfinite()
    largest = wide[finite].abs().max() if bool(finite.any()) else wide.new_zeros(())
    bound = tolerance * (torch.where(finite, wide, torch.zeros_like(wide)).abs() + largest + FLOOR)
    if foreign:
        bound = bound + _SLACK * (same - wide).abs().nan_to_num(0.0, 0.0, 0.0)
    alike = (got == wide) | (got.isnan() & wide.isnan()) | ((got - wide).abs() <= bound)
    return "" if bool(alike.all()) else _told(got, wide, ~alike)


def _dense(x: Tensor) -> Tensor:
    x = x.detach().cpu()
    x = x.to_dense() if x.layout is not torch.strided else x
    return x.resolve_conj().resolve_neg()


def _told(got: Tensor, wide: Tensor, off: Tensor) -> str:
    """The first element that is off, and how many there are."""
    where = [int(i) for i in off.nonzero()[0]]
    return f"{got[tuple(where)].item():.6g} at {where}, not {wide[tuple(where)].item():.6g} ({int(off.sum())} of {off.numel()} are off)"
