"""torch.export, data and state: branches, numbers from data, buffers that move, the module left alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.capture import export, export_bare, trace
from conformance.instruments.generalization import difference_of
from conformance.instruments.hooks import global_hooks_kept, hooks
from conformance.instruments.tracing import check_refused_or_general

pytestmark = [requires("export"), values, uncounted("torch.export records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]
STRICT = pytest.mark.parametrize("strict", [True, False], ids=["strict", "nonstrict"])


class Branching(nn.Module):
    """A branch on data."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return x + 1 if x.sum() > 0 else x - 1


class BranchOfExample(nn.Module):
    """The branch that the example took."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return x + 1


@STRICT
@catches(BranchOfExample, build=Branching)
def test_branch_on_data_is_told(build: Callable[[], nn.Module], strict: bool, device: torch.device, observe: Observe) -> None:
    """A branch on data is refused at export in both modes.

    pytorch/pytorch#163791. 2.1 to 2.15; the error's class changed in 2.3 and 2.7.
    """
    inputs = {"positive": (torch.ones(3, device=device),), "negative": (-torch.ones(3, device=device),)}
    check_refused_or_general(lambda: export(build(), inputs["positive"], strict=strict).run, Branching(), inputs, observe)


class ByItem(nn.Module):
    """Divides by a number got with .item()."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(N,)`."""
        return x / x.abs().max().item()


class ByItemOfExample(nn.Module):
    """Divides by the example's number."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(N,)`."""
        return x / 2.0


@STRICT
@catches(ByItemOfExample, build=ByItem)
def test_item_stays_data(build: Callable[[], nn.Module], strict: bool, device: torch.device, observe: Observe) -> None:
    """A number got with `.item()` stays an unknown in the exported program, or is refused; the tracer freezes it.

    pytorch/pytorch#158642. Follows the data on 2.1 to 2.15; refused by 2.2's non-strict mode.
    """
    inputs = {"max2": (torch.tensor([1.0, 2.0], device=device),), "max8": (torch.tensor([1.0, 8.0], device=device),)}
    check_refused_or_general(lambda: export(build(), inputs["max2"], strict=strict).run, ByItem(), inputs, observe)


class AddsInPlace(nn.Module):
    """A buffer moved by `add_`."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(2,)`."""
        self.total.add_(x)
        return self.total * 1


class AddsByOperator(AddsInPlace):
    """A buffer moved by `+=`, which also assigns it."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(2,)`."""
        self.total += x
        return self.total * 1


class AddsAside(AddsInPlace):
    """A sum that is not kept."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(2,)`."""
        return (self.total + x) * 1


def _check_state(build: Callable[[], nn.Module], strict: bool, device: torch.device) -> None:
    x, eager = torch.ones(2, device=device), AddsInPlace().to(device)
    run = export(build().to(device), (x,), strict=strict).run
    difference = difference_of([eager(x), eager(x)], [run(x), run(x)], "calls")
    assert not difference, difference


@STRICT
@catches(AddsAside, build=AddsInPlace)
def test_buffer_moved_in_place(build: Callable[[], nn.Module], strict: bool, device: torch.device) -> None:
    """A buffer that `add_` moves goes on moving in the exported program.

    pytorch/pytorch#111676. 2.1 to 2.15.
    """
    _check_state(build, strict, device)


@STRICT
@catches(AddsAside, build=AddsByOperator)
def test_buffer_moved_by_operator(build: Callable[[], nn.Module], strict: bool, device: torch.device) -> None:
    """A buffer that `+=` moves goes on moving in the exported program.

    pytorch/pytorch#111676. Strict: AssertionError inside torch on 2.1 to 2.9; non-strict: ValueError on 2.4 and 2.5. Since 2.10.
    """
    _check_state(build, strict, device)


def export_quietly(module: nn.Module, x: Tensor, strict: bool) -> None:
    """Export alone."""
    export(module, (x,), strict=strict)


def traces_instead(module: nn.Module, x: Tensor, strict: bool) -> None:
    """The tracer runs the module for real."""
    trace(module, (x,))


@STRICT
@catches(traces_instead, capture=export_quietly)
def test_export_leaves_module_alone(capture: Code, strict: bool, device: torch.device) -> None:
    """Exporting moves no buffer of the module and no training flag.

    pytorch/pytorch#185108. 2.1 to 2.15.
    """
    module = AddsInPlace().to(device).train()
    capture(module, torch.ones(2, device=device), strict)
    assert (module.total.tolist(), module.training) == ([1.0, 1.0], True)


class BranchesBesideBuffer(AddsInPlace):
    """Moves a buffer, then asks what no export can answer."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(2,)`."""
        self.total += x
        return x + 1 if x.sum() > 0 else x - 1


def let_export_clean_up(module: nn.Module, x: Tensor, strict: bool) -> None:
    """Whatever the export left is there."""
    with contextlib.suppress(Exception):
        export_bare(module, (x,), strict=strict)


def leaves_a_hook_behind(module: nn.Module, x: Tensor, strict: bool) -> None:
    """A hook that is taken off only when all goes well."""
    registration = nn.modules.module.register_module_buffer_registration_hook(lambda *_: None)
    with contextlib.suppress(Exception):
        export_bare(module, (x,), strict=strict)
        registration.remove()


@STRICT
@catches(leaves_a_hook_behind, attempt=let_export_clean_up)
def test_failed_export_leaves_no_hook(attempt: Code, strict: bool, device: torch.device) -> None:
    """An export that failed leaves no hook of its own on all modules of the process.

    pytorch/pytorch#172213, fixed by pytorch/pytorch#184956: a non-strict export of a module with buffers did, and strict exports
    after it raised `Attempted to call function marked as skipped`. Seen on 2.6 to 2.12, right on 2.3, 2.4 and since 2.13.
    """
    with global_hooks_kept() as before:
        attempt(BranchesBesideBuffer().to(device), torch.ones(2, device=device), strict)
        after = hooks()
    assert after == before
