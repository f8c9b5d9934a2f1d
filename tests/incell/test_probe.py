"""The probe finds each kind of broken device, emulated on the CPU by a dispatch mode, and nothing on a sound one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.incell.devices import backend
from conformance.incell.meters import DispatchMeter
from conformance.incell.probe import steps

#: As an op's result comes back from a broken device; the words are those of actions/runner-images#9918.
OUT_OF_MEMORY = "MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, max allowed: 7.93 GB)"


class Broken(TorchDispatchMode):
    """A device whose first op of one name comes to `fault`; those after it are done right, for the CPU's own run."""

    def __init__(self, name: str, fault: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.name, self.fault, self.met = name, fault, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name != f"aten::{self.name}":
            return result
        self.met += 1
        return self.fault(result) if self.met == 1 else result


def _no_memory(result: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("name", "fault", "outcome", "step"),
    [
        ("zeros", _no_memory, "out-of-memory", "allocate"),
        ("mm", lambda result: result * 0.5, "wrong", "mm"),
        ("convolution", lambda result: result[:1], "wrong", "conv"),
        ("addmm", lambda result: result * 1.2, "wrong", "linear with bias"),
        ("addmm", lambda result: result * float("nan"), "wrong", "linear with bias"),
    ],
)
def test_a_broken_device_is_found(name: str, fault: Callable[[torch.Tensor], Any], outcome: str, step: str) -> None:
    told: list[str] = []
    with Broken(name, fault) as broken:
        answer = steps(backend("cpu"), told.append)
    assert broken.met >= 1
    assert (answer.outcome, answer.step, told[-1]) == (outcome, step, step)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_sound_device_is_usable(device: str) -> None:
    told: list[str] = []
    answer = steps(backend(device), told.append)
    assert (str(answer), answer.outcome, answer.name) == ("ok", "usable", device)
    assert told == ["import", "allocate", "mm", "conv", "linear with bias"]


def test_a_device_that_is_not_there_is_absent() -> None:
    answer = steps(backend("xpu"), lambda step: None)
    assert (answer.outcome, "no xpu is there" in answer.detail) == ("absent", True)


def test_torch_tells_of_each_fallback_while_ops_are_counted() -> None:
    meter = DispatchMeter("meta")
    assert not torch.is_warn_always_enabled()
    with warnings.catch_warnings(), meter.counting():
        assert torch.is_warn_always_enabled()
        torch.ones(2, device="meta").add(1)
        torch.ones(2)
    assert not torch.is_warn_always_enabled()
    assert meter.as_record() == {"on": 2, "fallback": []}
