"""Inference mode: a table that was made, cast or copied inside it must not spoil the training that follows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation

Build = Callable[..., Any]


class Lazy:
    """Tables made at the first input, and kept."""

    def __init__(self) -> None:
        self.kept: Any = None

    def make(self, length: int, device: torch.device) -> Any:
        """Tables for twice the length."""
        return tuple(f(rotation.angles(range(2 * length), 4).float().to(device)) for f in (torch.cos, torch.sin))

    def stale(self) -> bool:
        """Whether what is kept is of no use now."""
        return False

    def __call__(self, length: int, device: torch.device) -> Any:
        """Tables `(length, 2)`."""
        if self.kept is None or self.kept[0].size(0) < length or self.stale():
            self.kept = self.make(length, device)
        return tuple(table[:length] for table in self.kept)


class AsksTheTable(Lazy):
    """Made anew when it is an inference tensor and inference is over."""

    def stale(self) -> bool:
        """Whether what is kept cannot be trained with."""
        return bool(self.kept[0].is_inference()) and not torch.is_inference_mode_enabled()


class BuildsOutside(Lazy):
    """Made outside inference mode whatever the mode is."""

    def make(self, length: int, device: torch.device) -> Any:
        """Tables that are ordinary tensors."""
        with torch.inference_mode(False):
            return super().make(length, device)


class Guarded:
    """The guard."""

    def __init__(self) -> None:
        self.cache: Any = None

    def __call__(self, length: int, device: torch.device) -> Any:
        """Tables `(length, 2)`."""
        self.cache = self.cache or RotaryCache(4, rows=2, device=device)
        return self.cache(length)


FORMS: dict[str, Build] = {"asks_the_table": AsksTheTable, "builds_outside": BuildsOutside, "guard": Guarded}


def in_its_form(form: str) -> Any:
    """The cache as it stands in FORMS."""
    return FORMS[form]()


def as_it_was_built(form: str) -> Any:
    """A cache that keeps what was built first."""
    return Lazy()


def _train(tables: Callable[..., Any], device: torch.device) -> None:
    x = torch.ones(1, 5, 1, 4, device=device, requires_grad=True)
    rotate(x, *tables(5, device))[..., :2].sum().backward()
    angle = rotation.angles(range(5), 4)
    assert x.grad is not None
    assert rotation.error(x.grad[0, :, 0], torch.cat([angle.cos(), angle.sin()], dim=-1)) < 1e-5


@values
@pytest.mark.parametrize("form", FORMS)
@catches(Twin(as_it_was_built, "raises"), choose=in_its_form)
def test_evaluation_first_then_training(choose: Callable[[str], Any], form: str, device: torch.device) -> None:
    """A table made during an evaluation in inference mode does not spoil the training after it.

    Dao-AILab/flash-attention#299. Loud ("Inference tensors cannot be saved for backward") on 1.13 to 2.15.
    """
    tables = choose(form)
    with torch.inference_mode():
        tables(6, device)
    _train(tables, device)


def evaluate_without_grad() -> Any:
    """`no_grad`."""
    return torch.no_grad()


def evaluates_in_inference_mode() -> Any:
    """`inference_mode`."""
    return torch.inference_mode()


@values
@catches(Twin(evaluates_in_inference_mode, "raises"), mode=evaluate_without_grad)
def test_no_grad_spoils_no_table(mode: Callable[[], Any], device: torch.device) -> None:
    """A naive cache made under `no_grad` can be trained with; under `inference_mode` it cannot.

    Dao-AILab/flash-attention#299. Holds on 1.13 to 2.15.
    """
    tables = Lazy()
    with mode():
        tables(6, device)
    _train(tables, device)


class KeepsTables(nn.Module):
    """Tables in plain buffers."""

    def __init__(self, head_dim: int, rows: int, device: torch.device) -> None:
        super().__init__()
        angle = rotation.angles(range(rows), head_dim).float().to(device)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, length: int) -> Any:
        """Tables `(length, D/2)`."""
        return self.cos[:length], self.sin[:length]


#: What inference code does to a model, each of which makes new tensors.
HANDLINGS: dict[str, Callable[[Any], Any]] = {
    "cast": lambda module: module.half().float(),
    "copied": copy.deepcopy,
}


@values
@pytest.mark.parametrize("handling", HANDLINGS)
@catches(Twin(KeepsTables, "raises"), cache=RotaryCache)
def test_handled_in_inference_mode_then_trained(cache: Build, handling: str, device: torch.device) -> None:
    """A model that was cast or copied inside inference mode can be trained outside it.

    Observed here: the buffers of the result are inference tensors, on 1.13 to 2.15; Dao-AILab/flash-attention#299 is the kin.
    """
    module = cache(4, rows=8, device=device)
    with torch.inference_mode():
        module = HANDLINGS[handling](module)
    _train(lambda length, _: module(length), device)
