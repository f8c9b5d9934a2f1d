"""Training through compiled code: gradients, hooks, optimizers, randomness."""

from __future__ import annotations

import contextlib
import copy
import random
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import Report, call, check_compiled, compiling
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

BACKENDS = ("eager", "aot_eager")


class Doubled(torch.autograd.Function):
    """Forward x, backward twice the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """As it is."""
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Doubled."""
        return gradient * 2


class Two(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)
        self.form = "plain"

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 3)`."""
        result: Tensor = PATHS[self.form](self, x)
        return result


def _hooked(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    y.register_hook(lambda gradient: gradient * 3)
    return m.second(y.relu())


#: Name -> a way from input to output.
PATHS: dict[str, Code] = {
    "plain": lambda m, x: m.second(m.first(x).relu()),
    "tied": lambda m, x: functional.linear(m.first(x), m.first.weight.t()),
    "detached": lambda m, x: m.second(m.first(x).detach().relu()) + m.first(x).sum(),
    "in_place": lambda m, x: m.second(m.first(x).mul_(2).relu_()),
    "custom_function": lambda m, x: m.second(Doubled.apply(m.first(x))),
    "checkpoint": lambda m, x: checkpoint(lambda y: m.second(m.first(y).relu()), x, use_reentrant=False),
    "hook_on_tensor": _hooked,
    "mean_square": lambda m, x: (m.second(m.first(x)) - x).pow(2).mean(),
    "unused": lambda m, x: m.first(x) * 2,
    "broken": lambda m, x: (m.first(x), torch._dynamo.graph_break(), m.second(m.first(x)))[2],
    "retain": lambda m, x: m.second(m.first(x).relu() * m.first(x).sigmoid()),
}


@contextmanager
def drops_gradients(code: Code, **options: Any) -> Any:
    """Right numbers, and every second gradient lost at a detach."""
    yield lambda x: code(x) + (code(x) - code(x).detach()), Report()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", PATHS)
@catches(drops_gradients, compiled_by=compiling)
def test_gradients_are_eagers(compiled_by: Code, form: str, backend: str, device: torch.device, observe: Observe) -> None:
    """Gradients of inputs and parameters through compiled code are eager's, accumulated over two calls.

    pytorch/pytorch#91665 (hooks); own observation for the others. 2.0 to 2.15.
    """
    module = fill(Two()).to(device)
    module.form = form
    x = uniform((2, 3)).to(device).requires_grad_()
    check_compiled(module, {"first": (x,), "second": (x,)}, observe, compiled_by=compiled_by, backend=backend, backward=True)


@pytest.mark.parametrize("backend", BACKENDS)
@catches(drops_gradients, compiled_by=compiling)
def test_requires_grad_is_seen(compiled_by: Code, backend: str, device: torch.device, observe: Observe) -> None:
    """An input that requires grad after one that did not, and a layer that is frozen later, have eager's gradients.

    pytorch/pytorch#119162; own observation. 2.0 to 2.15.
    """
    x = uniform((2, 3)).to(device)
    inputs = {
        "plain": call(x),
        "requires": call(x.clone().requires_grad_()),
        "frozen": call(x, before=lambda module: module.first.requires_grad_(False)),
    }
    check_compiled(fill(Two()).to(device), inputs, observe, compiled_by=compiled_by, backend=backend, backward=True)


def _train(step: Code, module: nn.Module, device: torch.device) -> list[float]:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for index in range(3):
        optimizer.zero_grad()
        loss = step(uniform((4, 3), str(index)).to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@contextmanager
def keeps_first_weights(code: Code, **options: Any) -> Any:
    """Weights folded into the program as constants: what freezing does."""
    yield copy.deepcopy(code), Report()


@pytest.mark.parametrize("backend", BACKENDS)
@catches(keeps_first_weights, compiled_by=compiling)
def test_optimizer_steps_are_seen(compiled_by: Code, backend: str, device: torch.device, observe: Observe) -> None:
    """A compiled module trained for three steps has eager's losses: each step sees the weights of the one before.

    pytorch/pytorch#104984. 2.0 to 2.15.
    """
    expected = _train(module := fill(Two()).to(device), module, device)
    module = fill(Two()).to(device)
    with compiled_by(module, backend=backend) as (compiled, report):
        got = _train(compiled, module, device)
    observe("graphs", report.graphs, better="lower")
    assert got == pytest.approx(expected, rel=1e-5)


@catches(keeps_first_weights, compiled_by=compiling)
def test_loaded_weights_are_seen(compiled_by: Code, device: torch.device) -> None:
    """Weights loaded into the module after compilation are those that the compiled module computes with, under no_grad too.

    pytorch/pytorch#104984. 2.0 to 2.15.
    """
    module, x = fill(Two()).to(device).eval(), uniform((2, 3)).to(device)
    with torch.no_grad(), compiled_by(module) as (compiled, _):
        compiled(x)
        module.load_state_dict(fill(Two(), seed=1).state_dict())
        assert torch.allclose(compiled(x), module(x))


def _triple(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output * 3


HOOKS: dict[str, Code] = {
    "forward": lambda module: module.first.register_forward_hook(_triple),
    "forward_pre": lambda module: module.first.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3,)),
    "forward_of_whole": lambda module: module.register_forward_hook(_triple),
    "backward": lambda module: module.first.register_full_backward_hook(lambda module, given, got: (given[0] * 3,)),
    "backward_pre": lambda module: module.first.register_full_backward_pre_hook(lambda module, got: (got[0] * 3,)),
}


@pytest.mark.parametrize("form", HOOKS)
@catches(replays_first_program, compiled_by=compiling)
def test_late_hook_is_seen(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A hook registered after the first compiled call runs in the second.

    pytorch/pytorch#117758, pytorch/pytorch#115750, pytorch/pytorch#117265.
    """
    x = uniform((2, 3)).to(device).requires_grad_()
    inputs = {"before": call(x), "after": call(x, before=HOOKS[form])}
    check_compiled(fill(Two()).to(device), inputs, observe, compiled_by=compiled_by, backend="aot_eager", backward=True)


def reset_after(register: Code) -> Code:
    """Throw away what was compiled."""

    def change(module: nn.Module) -> None:
        register(module)
        torch._dynamo.reset()

    return change


def registers_elsewhere(register: Code) -> Code:
    """On a copy."""
    return lambda module: register(copy.deepcopy(module))


@pytest.mark.parametrize("form", HOOKS)
@catches(registers_elsewhere, change=reset_after)
def test_late_hook_is_seen_after_reset(change: Code, form: str, device: torch.device) -> None:
    """A hook registered after the first compiled call runs in the second when `torch._dynamo.reset()` came between.

    pytorch/pytorch#117758. 2.0 to 2.15, also for what else is not seen; other ways, such as skip_nnmodule_hook_guards, changed.
    """
    module, x = fill(Two()).to(device), uniform((2, 3)).to(device).requires_grad_()
    expected = fill(Two()).to(device)
    HOOKS[form](expected)
    with compiling(module, "aot_eager") as (compiled, _):
        compiled(x)
        change(HOOKS[form])(module)
        gradients = [torch.autograd.grad(run(x).pow(2).sum(), x)[0] for run in (expected, compiled)]
        assert torch.allclose(compiled(x), expected(x))
    assert torch.allclose(*gradients)


@contextmanager
def loses_hooks(code: Code, **options: Any) -> Any:
    """A copy made of parameters and buffers alone."""
    bare = copy.deepcopy(code)
    for part in bare.modules():  # type: ignore[attr-defined]
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(part, name).clear()
    yield bare, Report()


@pytest.mark.parametrize("form", HOOKS)
@catches(loses_hooks, compiled_by=compiling)
def test_early_hook_runs(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A hook registered before the first compiled call runs in each, and answers and gradients are eager's.

    pytorch/pytorch#91665, pytorch/pytorch#98371.
    """
    module = fill(Two()).to(device)
    HOOKS[form](module)
    x = uniform((2, 3)).to(device)
    seen = []
    for run_by in (None, compiled_by):
        given = x.clone().requires_grad_()
        with run_by(module, backend="aot_eager") if run_by is not None else contextlib.nullcontext((module, None)) as (run, _):
            result = run(given)
            seen += [result, *torch.autograd.grad(result.pow(2).sum(), given)]
    assert torch.allclose(seen[0], seen[2])
    assert torch.allclose(seen[1], seen[3])


#: Name -> what draws.
DRAWS: dict[str, Code] = {
    "dropout": lambda x: functional.dropout(x, 0.5),
    "rand_like": lambda x: torch.rand_like(x) + x,
    "randn": lambda x: torch.randn(8, device=x.device) + x,
    "bernoulli": lambda x: torch.bernoulli(x * 0 + 0.5),
    "multinomial": lambda x: torch.multinomial(x.abs(), 4) * 1,
    "twice": lambda x: functional.dropout(x, 0.5) + functional.dropout(x, 0.5),
}


@contextmanager
def draws_once(code: Code, **options: Any) -> Any:
    """What was drawn at first is part of the program."""
    answers: list[Any] = []

    def run(x: Tensor) -> Any:
        answers.append(code(x))
        return answers[0]

    yield run, Report()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", DRAWS)
@catches(draws_once, compiled_by=compiling)
def test_draws_follow_the_seed(compiled_by: Code, form: str, backend: str, device: torch.device, observe: Observe) -> None:
    """Under one seed compiled code draws what eager code draws, call after call, without inductor.

    pytorch/pytorch#118735: with inductor this holds only with `fallback_random`. 2.0 to 2.15.
    """
    x = uniform((8,)).to(device)
    inputs = {f"call{i}": (x,) for i in range(3)}
    check_compiled(DRAWS[form], inputs, observe, compiled_by=compiled_by, backend=backend, fresh=lambda: torch.manual_seed(0))


#: Name -> Python's own sources of change.
SOURCES: dict[str, Code] = {
    "random": lambda x: x * random.random(),
    "randint": lambda x: x * random.randint(1, 1000),
    "uniform": lambda x: x * random.uniform(1.0, 2.0),
    "choice": lambda x: x * random.choice([2.0, 3.0, 5.0, 7.0, 11.0]),
    "shuffle": lambda x: x * _shuffled()[0],
}


def _shuffled() -> list[int]:
    held = list(range(1, 100))
    random.shuffle(held)
    return held


@pytest.mark.parametrize("form", SOURCES)
@catches(replays_first_program, compiled_by=compiling)
def test_python_random_is_drawn(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """Python's `random` inside compiled code is drawn anew at each call, in the stream that eager code has.

    pytorch/pytorch#133725, pytorch/pytorch#185961. 2.0 to 2.15.
    """
    inputs = {f"call{i}": (torch.ones(2, device=device),) for i in range(4)}
    check_compiled(SOURCES[form], inputs, observe, compiled_by=compiled_by, fresh=lambda: random.seed(0))


CLOCKS: dict[str, Code] = {
    "time": lambda x: x * 0 + time.time(),
    "perf_counter": lambda x: x * 0 + time.perf_counter(),
    "monotonic_ns": lambda x: x * 0 + time.monotonic_ns() * 1e-9,
}


@pytest.mark.parametrize("form", CLOCKS)
@catches(replays_first_program, compiled_by=compiling)
def test_clock_goes_on(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """A clock read inside compiled code tells a later time at a later call.

    Own observation. 2.0 to 2.15.
    """
    x = torch.ones(1, dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)
    with compiled_by(CLOCKS[form]) as (compiled, report):
        first = float(compiled(x))
        time.sleep(0.002)
        second = float(compiled(x))
    observe("breaks", len(report.breaks) + len(report.skipped), better="lower")
    assert second > first
