"""Gradients from the loss to the step: kept in the graph, clipped in low precision, orthogonalised, unscaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import clip_grad_norm_, orthogonalise
from conformance.incell import catches, dtypes, requires, values
from conformance.incell.marks import Twin
from conformance.instruments.dispatching import recorded
from conformance.instruments.weights import uniform

Observe = Callable[..., None]
Clip = Callable[[list[nn.Parameter], float], Tensor]


def clip_natively(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """torch's own."""
    return nn.utils.clip_grad_norm_(parameters, max_norm)


def squares_in_low_precision(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """300 squared is infinity in float16."""
    squares = [parameter.grad.float().pow(2).to(parameter.dtype) for parameter in parameters if parameter.grad is not None]
    norm = torch.cat(squares).float().sum().sqrt()
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.copy_(parameter.grad.float() * (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def clips_each_parameter(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """Not the joint norm."""
    return torch.stack([clip_grad_norm_([parameter], max_norm) for parameter in parameters]).norm()


def _check_clip(clip: Clip, device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    parameters = [nn.Parameter(torch.zeros(100_000, dtype=dtype, device=device)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 300.0)
    try:
        norm = float(clip(parameters, 100.0))
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        pytest.skip(str(error).splitlines()[0])
    clipped = torch.cat([parameter.grad.cpu().double() for parameter in parameters if parameter.grad is not None])
    observe("norm", norm)
    observe("norm_after", float(clipped.norm()))
    assert norm == pytest.approx(300.0 * 200_000**0.5, rel=0.01)
    assert float(clipped.norm()) == pytest.approx(100.0, rel=0.01)


@values
@dtypes("float32", "bfloat16", "float16")
@catches(clips_each_parameter, clip=clip_grad_norm_)
def test_clip_in_low_precision(clip: Clip, device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    """Gradients whose joint norm is beyond float16's range are clipped to the norm asked for.

    pytorch/pytorch#46849. Guard `clip_grad_norm_`, 1.13 to 2.15.
    """
    _check_clip(clip, device, dtype, observe)


@values
@dtypes("float16")
@catches(squares_in_low_precision, clip=clip_grad_norm_)
def test_clip_squares_in_float32(clip: Clip, device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    """Gradients whose squares are beyond float16's range are clipped to the norm asked for.

    facebookresearch/fairscale#263, tracel-ai/burn#5699. Guard `clip_grad_norm_`, 1.13 to 2.15.
    """
    _check_clip(clip, device, dtype, observe)


@values
@dtypes("float32", "bfloat16", "float16")
@catches(clips_each_parameter, clip=clip_natively)
def test_clip_in_low_precision_native(clip: Clip, device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    """`torch.nn.utils.clip_grad_norm_` clips gradients whose joint norm is beyond float16's range.

    pytorch/pytorch#46849: an infinite norm makes every gradient zero, in silence. Observed for float16 on 2.1 to 2.15; older
    releases have no kernel for it on the CPU.
    """
    _check_clip(clip, device, dtype, observe)


def normalises_in_its_own_dtype(matrix: Tensor, steps: int = 5) -> Tensor:
    """The norm of a float16 matrix overflows."""
    norm = matrix.float().pow(2).to(matrix.dtype).float().sum((-2, -1), keepdim=True).sqrt()
    return orthogonalise(matrix.float() / norm, steps).to(matrix.dtype)


def divides_by_the_bare_norm(matrix: Tensor, steps: int = 5) -> Tensor:
    """Nothing keeps a zero matrix from 0 / 0."""
    wide = matrix.float()
    return orthogonalise(wide / wide.norm(), steps).to(matrix.dtype)


def normalises_rows(matrix: Tensor, steps: int = 5) -> Tensor:
    """Rows of length 1, not orthogonal."""
    wide = matrix.float()
    return (wide / (wide.norm(dim=-1, keepdim=True) + 1e-7)).to(matrix.dtype)


@values
@dtypes("float16", "bfloat16", "float32")
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (2, 5, 5)], ids=["tall", "wide", "batch"])
@catches(normalises_rows, orthogonal=orthogonalise)
def test_gradient_is_orthogonalised(
    orthogonal: Callable[..., Tensor], shape: tuple[int, ...], device: torch.device, dtype: torch.dtype, observe: Observe
) -> None:
    """Newton and Schulz's iteration brings every singular value of a gradient near 1 and keeps its dtype.

    karpathy/nanochat (Muon), pytorch/pytorch#160213. Guard `orthogonalise`, 1.13 to 2.15.
    """
    matrix = orthogonal(((uniform(shape) + 1.0) * 1000).to(device, dtype), 8)
    sizes = torch.linalg.svdvals(matrix.cpu().double())
    observe("smallest", round(float(sizes.min()), 4))
    assert matrix.dtype == dtype
    assert 0.5 < float(sizes.min()) <= float(sizes.max()) < 1.4


@values
@dtypes("float16")
@catches(normalises_in_its_own_dtype, divides_by_the_bare_norm, orthogonal=orthogonalise)
def test_orthogonalised_extremes_are_finite(orthogonal: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Neither a zero gradient nor a large float16 one becomes NaN or zero on the way.

    microsoft/dion#24 (zero gradients), deepspeedai/DeepSpeed#8533 (normalise before the cast). Guard `orthogonalise`, 1.13 to 2.15.
    """
    zero, large = torch.zeros(4, 4, dtype=dtype, device=device), (torch.eye(4) * 3000).to(device, dtype)
    assert orthogonal(zero).tolist() == [[0.0] * 4] * 4
    assert 0.5 < float(orthogonal(large).float().diagonal().min()) < 1.4


def clip_after_unscaling(scaler: Any, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> None:
    """Unscale, clip, step."""
    scaler.unscale_(optimizer)
    clip_grad_norm_([parameter], 1.0)
    scaler.step(optimizer)


def clips_scaled_gradients(scaler: Any, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> None:
    """The norm is 65536 times what it says."""
    clip_grad_norm_([parameter], 1.0)
    scaler.step(optimizer)


def steps_past_the_scaler(scaler: Any, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> None:
    """Nothing is unscaled, nothing skipped."""
    del scaler, parameter
    optimizer.step()


@values
@requires("torch.amp.GradScaler")
@catches(clips_scaled_gradients, Twin(steps_past_the_scaler, "raises"), step=clip_after_unscaling)
def test_scaled_step_is_clipped_after_unscaling(step: Callable[..., None], device: torch.device) -> None:
    """A scaled step moves by the clipped gradient, and one whose gradient is infinite does not move.

    harubaru/waifu-diffusion#64. `torch.amp.GradScaler` takes the CPU since 2.3.
    """
    scaler = torch.amp.GradScaler(device.type)
    parameter = nn.Parameter(torch.zeros(1, device=device))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    for slope, expected in ((3.0, -1.0), (float("inf"), -1.0), (0.5, -1.5)):
        optimizer.zero_grad()
        scaler.scale((parameter * slope).sum()).backward()
        step(scaler, optimizer, parameter)
        scaler.update()
        assert float(parameter.detach()) == pytest.approx(expected, abs=1e-4)


def step_through_scaler(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Enabled where CUDA's float16 needs it; elsewhere it passes all through."""
    scaler = torch.cuda.amp.GradScaler(enabled=loss.device.type == "cuda")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def scales_by_hand(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """And forgets to divide."""
    (loss * 65536.0).backward()
    optimizer.step()


@values
@pytest.mark.filterwarnings("ignore::FutureWarning")
@catches(scales_by_hand, step=step_through_scaler)
def test_scaler_is_no_hindrance_elsewhere(step: Callable[..., None], device: torch.device) -> None:
    """A training step written for CUDA's GradScaler steps as it should on a device that needs none.

    Observed on 1.13 to 2.15: disabled, it passes loss and step through.
    """
    parameter = nn.Parameter(torch.zeros(1, device=device))
    step((parameter * 0.5).sum(), torch.optim.SGD([parameter], lr=1.0))
    assert float(parameter.detach()) == -0.5


def stack_losses(losses: list[Tensor]) -> Tensor:
    """A tensor of tensors, still in the graph."""
    return torch.stack(losses)


def makes_tensor_of_losses(losses: list[Tensor]) -> Tensor:
    """Reads each of them, and leaves the graph."""
    return torch.tensor(losses, device=losses[0].device, requires_grad=True)


@values
@catches(makes_tensor_of_losses, collect=stack_losses)
def test_losses_are_stacked(collect: Callable[[list[Tensor]], Tensor], device: torch.device) -> None:
    """Several losses become one tensor without being read, and their gradients reach the weight.

    Observed on 1.13 to 2.15: `torch.tensor([...])` reads each, and training goes on without a gradient.
    """
    weight = torch.ones(2, device=device, requires_grad=True)
    with recorded(device) as seen:
        collect([weight.sum(), weight.square().sum()]).sum().backward()
    assert seen.of("sync") == []
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]
