"""Optimizer states of other releases: steps that are numbers, options that did not exist, and options that do not exist here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, values
from conformance.instruments.weights import uniform

#: Options of Adam that came after 1.11; a checkpoint of that release has none of them.
_NEWER = ("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay")

Convert = Callable[[Any], Any]


def _optimizer(kind: str, device: torch.device) -> tuple[torch.optim.Optimizer, nn.Parameter]:
    parameter = nn.Parameter(uniform((4, 3), "weight").to(device))
    return getattr(torch.optim, kind)([parameter], lr=0.1, weight_decay=0.1), parameter


def _step(optimizer: torch.optim.Optimizer, parameter: Tensor, number: int) -> None:
    parameter.grad = uniform((4, 3), "gradient", number).to(parameter.device)
    optimizer.step()


def as_1_11_wrote_it(state: Any) -> Any:
    """Steps are numbers, and the options end with amsgrad."""
    old = copy.deepcopy(state)
    for each in old["state"].values():
        each["step"] = int(each["step"])
    for group in old["param_groups"]:
        for option in _NEWER:
            group.pop(option, None)
    return old


def as_a_later_release_writes_it(state: Any) -> Any:
    """An option that no release has yet."""
    new = copy.deepcopy(state)
    for group in new["param_groups"]:
        group["an_option_of_tomorrow"] = True
    return new


def loses_the_steps(state: Any) -> Any:
    """Averages without their age: they are corrected as if they were new."""
    old = as_1_11_wrote_it(state)
    for each in old["state"].values():
        each["step"] = 0
    return old


def loses_the_averages(state: Any) -> Any:
    """The options alone."""
    old = as_1_11_wrote_it(state)
    old["state"] = {}
    return old


WRITERS: dict[str, Convert] = {"older": as_1_11_wrote_it, "newer": as_a_later_release_writes_it}


def of_that_writer(writer: str) -> Convert:
    """The state as it stands in WRITERS."""
    return WRITERS[writer]


def without_steps(writer: str) -> Convert:
    """The steps are lost on the way."""
    return loses_the_steps


def without_averages(writer: str) -> Convert:
    """The averages are lost on the way."""
    return loses_the_averages


@values
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("writer", WRITERS)
@catches(without_steps, without_averages, choose=of_that_writer)
def test_state_of_another_release_goes_on(choose: Callable[[str], Convert], writer: str, kind: str, device: torch.device) -> None:
    """A state that 1.11 wrote, or a later release, makes the next step that the uninterrupted training makes.

    pytorch/torchtitan#848 and pytorch/pytorch#103256 (the step of a state), pytorch/pytorch#7499 (an option that is missing). 1.13 to
    2.15.
    """
    optimizer, parameter = _optimizer(kind, device)
    for number in range(2):
        _step(optimizer, parameter, number)
    resumed, again = _optimizer(kind, device)
    again.data.copy_(parameter.data)
    resumed.load_state_dict(choose(writer)(optimizer.state_dict()))
    for moved, weight in ((optimizer, parameter), (resumed, again)):
        _step(moved, weight, 2)
    torch.testing.assert_close(again.cpu(), parameter.cpu(), rtol=1e-6, atol=1e-6)
