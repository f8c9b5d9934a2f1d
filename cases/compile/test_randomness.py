"""What differs from call to call: draws under a seed, Python's own random numbers, clocks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from conformance.incell import catches, requires, uncounted, values
from conformance.incell.torchstate import seed_all
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

BACKENDS = ("eager", "aot_eager")

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

    pytorch/pytorch#118735: with inductor this holds only with `fallback_random`. 2.0 to 2.15; multinomial since 2.1.
    """
    x = uniform((8,)).to(device)
    inputs = {f"call{i}": (x,) for i in range(3)}
    check_compiled(DRAWS[form], inputs, observe, compiled_by=compiled_by, backend=backend, fresh=lambda: seed_all(0, device.type))


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

    pytorch/pytorch#133725, pytorch/pytorch#185961. 2.1 to 2.15; `shuffle` not on 2.14 and 2.15, of the others `choice` alone on 2.0.
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
