"""Optimizer maths in mixed dtypes and on strided parameters, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import adamw_step_, lerp_, optimizer_for, scalar_for
from conformance.incell import catches, dtypes, values
from conformance.incell.marks import Twin
from conformance.instruments.dispatching import elsewhere, recorded
from conformance.instruments.weights import uniform

Observe = Callable[..., None]
Moments = tuple[Tensor, Tensor]
LR, DECAY, BETAS, EPS = 1e-3, 0.1, (0.9, 0.999), 1e-8


def lerps_natively(state: Tensor, grad: Tensor, weight: float) -> Tensor:
    """torch wants one dtype."""
    return state.lerp_(grad, weight)


def lerps_in_low_precision(state: Tensor, grad: Tensor, weight: float) -> Tensor:
    """The state is rounded on the way."""
    rounded = state.to(grad.dtype).float()
    return state.copy_((rounded + weight * (grad.float() - rounded)).to(grad.dtype))


@values
@dtypes("bfloat16", "float16")
@catches(Twin(lerps_natively, "raises"), lerps_in_low_precision, lerp=lerp_)
def test_float32_state_takes_low_precision_gradients(lerp: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """A float32 moment moves towards a gradient of low precision by float32's rounding alone.

    zichongli5/NorMuon#7, karpathy/nanochat#741: native `lerp_` raises on 1.13 to 2.15. Guard `lerp_`.
    """
    state, grad = uniform((5, 7)).to(device), uniform((5, 7), "grad").to(device, dtype)
    expected = torch.lerp(state.cpu().double(), grad.cpu().double(), 0.05)
    torch.testing.assert_close(lerp(state, grad, 0.05).cpu().double(), expected, rtol=1e-6, atol=1e-7)


def _reference(start: Tensor, grads: list[Tensor]) -> Tensor:
    """AdamW in float64."""
    x, mean, square = start.double(), torch.zeros_like(start, dtype=torch.float64), torch.zeros_like(start, dtype=torch.float64)
    for step, grad in enumerate(grads, 1):
        slope = grad.double()
        mean, square = mean + (slope - mean) * (1 - BETAS[0]), square + (slope * slope - square) * (1 - BETAS[1])
        size = (square / (1 - BETAS[1] ** step)).sqrt() + EPS
        x = x * (1 - LR * DECAY) - LR * (mean / (1 - BETAS[0] ** step)) / size
    return x


def step_by_guard(x: Tensor, grad: Tensor, state: Moments, step: int, scalars: dict[str, Tensor]) -> None:
    """Float32 moments, scalars as they come."""
    betas = (scalars["beta1"], scalars["beta2"])
    adamw_step_(x, grad, state, scalars["step"] * 0 + step, scalars["lr"], betas, scalars["eps"], scalars["decay"])


def casts_scalars_to_the_parameter(x: Tensor, grad: Tensor, state: Moments, step: int, scalars: dict[str, Tensor]) -> None:
    """Every scalar in the parameter's dtype: in bfloat16 beta2 is 1, and 1 - lr * decay too."""
    narrow = {name: value.to(x.device, torch.bfloat16) for name, value in scalars.items()}
    step_by_guard(x, grad, state, step, narrow)


def keeps_low_precision_moments(x: Tensor, grad: Tensor, state: Moments, step: int, scalars: dict[str, Tensor]) -> None:
    """The second moment cannot move by a thousandth of itself."""
    for moment in state:
        moment.copy_(moment.bfloat16())
    step_by_guard(x, grad, state, step, scalars)
    for moment in state:
        moment.copy_(moment.bfloat16())


def forgets_bias_correction(x: Tensor, grad: Tensor, state: Moments, step: int, scalars: dict[str, Tensor]) -> None:
    """As if it had trained for long."""
    step_by_guard(x, grad, state, step + 100000, scalars)


def _scalars() -> dict[str, Tensor]:
    numbers = {"lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "decay": DECAY, "step": 1.0}
    return {name: torch.tensor(number, dtype=torch.float64).float() for name, number in numbers.items()}


@values
@pytest.mark.parametrize("where", ["host", "beside"])
@catches(casts_scalars_to_the_parameter, keeps_low_precision_moments, forgets_bias_correction, step=step_by_guard)
def test_adamw_is_float64s(step: Callable[..., None], where: str, device: torch.device, observe: Observe) -> None:
    """Fifty AdamW steps with hyperparameters in 0-dim tensors, on the host or beside the parameter, are float64's to 3e-6.

    karpathy/nanochat#741, karpathy/nanochat#685: scalars cast to bfloat16 lose beta2. Guard `adamw_step_`, 1.13 to 2.15.
    """
    start, grads = uniform((6, 5)), [uniform((6, 5), "grad", seed) for seed in range(50)]
    x = start.clone().to(device)
    state = (torch.zeros_like(x), torch.zeros_like(x))
    scalars = {name: value.to(device if where == "beside" else "cpu") for name, value in _scalars().items()}
    for number, grad in enumerate(grads, 1):
        step(x, grad.to(device), state, number, scalars)
    error = float((x.cpu().double() - _reference(start, grads)).abs().max())
    observe("error", error, better="lower")
    assert error < 3e-6


def steps_in_the_parameters_dtype(x: Tensor, grad: Tensor, state: Moments, step: int, scalars: dict[str, Tensor]) -> None:
    """nanochat's step before its repair: bfloat16 parameters meet float32 scalars of one dimension."""
    wide = {name: value.to(x.device).reshape(1) for name, value in scalars.items()}
    x.mul_(1 - wide["lr"] * wide["decay"])
    state[0].copy_(state[0] + (grad - state[0]) * (1 - wide["beta1"]))
    x.add_(state[0] * -LR / step)


@dtypes("bfloat16", "float16")
@catches(steps_in_the_parameters_dtype, step=step_by_guard)
def test_adamw_mixes_no_dtypes(step: Callable[..., None], device: torch.device, dtype: torch.dtype) -> None:
    """A step of low-precision parameters gives no op two float dtypes, and none tensors of two devices.

    karpathy/nanochat#741, karpathy/nanochat#685: MPS aborts the process. Guard `adamw_step_`, 1.13 to 2.15.
    """
    target = elsewhere(device)
    x, grad = (torch.ones(4, 3, dtype=dtype, device=target) for _ in range(2))
    state = (torch.zeros(4, 3, device=target), torch.zeros(4, 3, device=target))
    scalars = {name: scalar_for(state[0], value) for name, value in _scalars().items()}
    with recorded(target) as seen:
        step(x, grad, state, 1, scalars)
    assert seen.of("mixed", "crossing", "float64", "sync") == []


def step_master_weights(start: Tensor, steps: int, lr: float) -> Tensor:
    """Step a float32 copy, then round."""
    master = nn.Parameter(start.float())
    optimizer = torch.optim.SGD([master], lr=lr)
    for _ in range(steps):
        master.grad = torch.ones_like(master)
        optimizer.step()
    return master.detach().to(start.dtype)


def steps_low_precision_weights(start: Tensor, steps: int, lr: float) -> Tensor:
    """Each update is rounded away."""
    weight = nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([weight], lr=lr)
    for _ in range(steps):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    return weight.detach()


@values
@dtypes("bfloat16", "float16")
@catches(steps_low_precision_weights, train=step_master_weights)
def test_small_steps_add_up(train: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """A thousand steps of 1e-4 move a low-precision weight by a tenth, through a float32 master copy.

    Nerogar/OneTrainer#996, workofart/ml-by-hand#85. Without the copy each step is rounded away, in silence. 1.13 to 2.15.
    """
    end = train(torch.ones(3, dtype=dtype, device=device), 1000, 1e-4)
    torch.testing.assert_close(end.float().cpu(), torch.full((3,), 0.9), rtol=0.01, atol=0.0)


def asks_and_gives_up(kind: Any, parameters: list[nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """The fallback forgets the options."""
    del options
    plain: torch.optim.Optimizer = kind(parameters, lr=1e-3)
    return plain


@values
@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "Rprop"])
@catches(asks_and_gives_up, make=optimizer_for)
def test_fastest_optimizer_steps_alike(
    make: Callable[..., torch.optim.Optimizer], optimizer: str, device: torch.device, observe: Observe
) -> None:
    """The fastest form of an optimizer that this release and device take moves parameters like the plain one.

    Observed on the CPU: AdamW is fused since 2.4. Guard `optimizer_for`, 1.13 to 2.15.
    """
    ends = []
    for build in (make, lambda kind, parameters, **options: kind(parameters, **options)):
        parameter = nn.Parameter(uniform((4, 6)).to(device))
        parameter.grad = uniform((4, 6), "grad").to(device)
        stepper = build(getattr(torch.optim, optimizer), [parameter], lr=0.03)
        stepper.step()
        ends.append(parameter.detach().cpu())
        if build is make:
            observe("form", next((way for way in ("fused", "foreach") if stepper.defaults.get(way)), "plain"))
    torch.testing.assert_close(*ends)


def moves_by_half_a_weight(target: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """The bits of a float32 weight are read as if it were of the target's dtype."""
    narrow = weight.reshape(1).view(torch.int16)[0].view(target.dtype).float()
    return target.copy_(target.float() + (end.float() - target.float()) * narrow)


@values
@dtypes("bfloat16", "float16")
@catches(moves_by_half_a_weight, move=lerp_)
def test_average_stays_between_its_ends(move: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """A low-precision average moved by a float32 weight in a 0-dim tensor lies between its ends.

    pytorch/pytorch#196067: negative on MPS, 2.14. Guard `lerp_`, 1.13 to 2.15; natively the CPU refuses until 2.6.
    """
    target = torch.zeros(3, dtype=dtype, device=device)
    moved = move(target, target + 1, torch.tensor(0.1))
    torch.testing.assert_close(moved.float().cpu(), torch.full((3,), 0.1), rtol=0.01, atol=0.0)


def move_natively(target: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """As torch has it."""
    return target.lerp_(end, weight)


@values
@dtypes("bfloat16", "float16")
@catches(moves_by_half_a_weight, move=move_natively)
def test_average_by_a_wider_weight_native(move: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """`lerp_` of a low-precision average takes a float32 weight in a 0-dim tensor.

    pytorch/pytorch#196067: negative on MPS, 2.14. On the CPU right since 2.7; until 2.6 it refuses two dtypes.
    """
    target = torch.zeros(3, dtype=dtype, device=device)
    moved = move(target, target + 1, torch.tensor(0.1))
    torch.testing.assert_close(moved.float().cpu(), torch.full((3,), 0.1), rtol=0.01, atol=0.0)
