"""Optimizer maths that no backend refuses or gets wrong: mixed dtypes, strided parameters, hyperparameters as tensors, no waiting.

Where bfloat16 and float32 meet, MPS aborts in `mul` (karpathy/nanochat#741), `lerp_` raises on the CPU (zichongli5/NorMuon#7), and
a cast to bfloat16 rounds beta2 = .999 to 1. MPS left strided tensors unwritten in `addcmul_` and `addcdiv_`
(pytorch/pytorch#118115). So these compute out of place in float32 and copy, which rounds once and takes any strides. The native
op is taken where its operands are plain: of one wide dtype and contiguous. They hold on 1.13 and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.guards.fused import steps_by

_WIDE = (torch.float32, torch.float64)
#: The quintic of Newton and Schulz that Muon iterates; it brings singular values near 1, not to it.
_QUINTIC = (3.4445, -4.7750, 2.0315)


def widened(tensor: Tensor) -> Tensor:
    """`tensor` in float32; itself where it is float32 or float64."""
    return tensor if tensor.dtype in _WIDE else tensor.float()


def scalar_for(x: Tensor, value: float | Tensor) -> Any:
    """A hyperparameter as an op on a wide `x` takes it: a number as it is, a tensor cast and then moved, without reading it.

    Never in low precision: in bfloat16 .999 is 1 and 1 - 1e-3 is 1.
    """
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(x.dtype if x.dtype in _WIDE else torch.float32).to(x.device)


def _plain(target: Tensor, *others: Tensor) -> bool:
    return target.dtype in _WIDE and target.is_contiguous() and all(o.dtype == target.dtype and o.is_contiguous() for o in others)


@torch.no_grad()
def lerp_(target: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
    """`target += weight * (end - target)` in place, whatever float dtypes and strides the three have."""
    if _plain(target, end) and not isinstance(weight, Tensor):
        return target.lerp_(end, weight)
    start = widened(target)
    return target.copy_(start + (end.to(start.dtype) - start) * scalar_for(start, weight))


@torch.no_grad()
def addcmul_(target: Tensor, first: Tensor, second: Tensor, value: float | Tensor = 1.0) -> Tensor:
    """`target += value * first * second` in place, whatever float dtypes and strides they have."""
    if _plain(target, first, second) and not isinstance(value, Tensor):
        return target.addcmul_(first, second, value=value)
    start = widened(target)
    return target.copy_(start + first.to(start.dtype) * second.to(start.dtype) * scalar_for(start, value))


@torch.no_grad()
def addcdiv_(target: Tensor, numerator: Tensor, denominator: Tensor, value: float | Tensor = 1.0) -> Tensor:
    """`target += value * numerator / denominator` in place, whatever float dtypes and strides they have."""
    if _plain(target, numerator, denominator) and not isinstance(value, Tensor):
        return target.addcdiv_(numerator, denominator, value=value)
    start = widened(target)
    return target.copy_(start + numerator.to(start.dtype) / denominator.to(start.dtype) * scalar_for(start, value))


@torch.no_grad()
def adamw_step_(
    parameter: Tensor,
    grad: Tensor,
    state: tuple[Tensor, Tensor],
    step: float | Tensor,
    lr: float | Tensor = 1e-3,
    betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
    eps: float | Tensor = 1e-8,
    weight_decay: float | Tensor = 0.0,
) -> Tensor:
    """One AdamW step of `parameter` in any float dtype; `state` holds the two moments, float32 (or float64), which it updates.

    `step` counts from 1. Scalars may be 0-dim tensors, so that a compiled step is not compiled again when they change.
    """
    mean, square = state
    lr, eps, weight_decay, step = (scalar_for(mean, value) for value in (lr, eps, weight_decay, step))
    first, second = (scalar_for(mean, beta) for beta in betas)
    slope = grad.to(mean.dtype)
    lerp_(mean, slope, 1 - first)
    lerp_(square, slope * slope, 1 - second)
    size = (square / (1 - second**step)).sqrt() + eps
    start = parameter.to(mean.dtype)
    return parameter.copy_(start * (1 - lr * weight_decay) - lr * (mean / (1 - first**step)) / size)


def has_matmul(dtype: torch.dtype, device: torch.device | str) -> bool:
    """Whether `device` has a matrix product of `dtype`, asked by one of 2 x 2."""
    try:
        ones = torch.ones(2, 2, device=device).to(dtype)
        torch.mm(ones, ones)
    except (TypeError, RuntimeError):
        return False
    return True


@torch.no_grad()
def orthogonalise(matrix: Tensor, steps: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """`matrix` `(..., M, N)` with its singular values brought to about 1 (0.7 to 1.2) by Newton and Schulz, as Muon does.

    Computed in `dtype`, or in float32 where the device cannot multiply that; scaled in float32, since the norm of a float16
    matrix overflows. A zero matrix stays zero. Result in the dtype of `matrix`.
    """
    wide = matrix.float()
    scaled = wide / (wide.pow(2).sum((-2, -1), keepdim=True).sqrt() + 1e-7)
    x = scaled.to(dtype if dtype == torch.float32 or has_matmul(dtype, matrix.device) else torch.float32)
    tall = x.size(-2) > x.size(-1)
    x = x.transpose(-2, -1).contiguous() if tall else x
    a, b, c = _QUINTIC
    for _ in range(steps):
        gram = x @ x.transpose(-2, -1)
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.transpose(-2, -1) if tall else x).to(matrix.dtype)


@torch.no_grad()
def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale the gradients to a joint 2-norm of at most `max_norm`; returns the norm before, a float32 0-dim tensor.

    The host never waits for it. Squares are summed in float32: torch's own returns the norm in the gradients' dtype, and where a
    float16 one overflows it sets every gradient to zero, in silence (fairscale#263 is the same mistake).
    """
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not grads:
        return torch.zeros(())
    device = grads[0].device
    norms = torch.stack([widened(grad).norm().float().to(device) for grad in grads])
    total = norms.norm()
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.copy_(widened(grad) * scale.to(grad.device))
    return total


def optimizer_for(
    kind: Any, parameters: Iterable[Any], ways: Sequence[str] = ("fused", "foreach"), **options: Any
) -> torch.optim.Optimizer:
    """`kind(parameters, **options)` by the first of `ways` that this release and the parameters' devices take, else plain.

    fused AdamW takes CUDA since 2.0, the CPU since 2.4 and MPS since 2.5; before, asking for it raises.
    """
    groups = list(parameters)
    tensors = [each for group in groups for each in (group["params"] if isinstance(group, dict) else [group])]
    way = next((way for way in ways if steps_by(kind, tensors, way)), None)
    optimizer: torch.optim.Optimizer = kind(groups, **({way: True} if way is not None else {}), **options)
    return optimizer
