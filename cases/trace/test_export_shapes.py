"""torch.export and dynamic shapes: what it serves, what it refuses, and that it freezes nothing in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.capture import export
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.tracing import check_refused_or_general
from conformance.instruments.weights import uniform

pytestmark = [requires("export"), values, uncounted("torch.export records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]
STRICT = pytest.mark.parametrize("strict", [True, False], ids=["strict", "nonstrict"])


class Doubling(nn.Module):
    """Flatten `(B, ...)` and double."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 3, 4)`."""
        return x.flatten(1) * 2


def _batches(device: torch.device, *sizes: int) -> dict[str, tuple[Tensor, ...]]:
    return {f"batch{n}": (uniform((n, 3, 4), str(n)).to(device),) for n in sizes}


def name_the_batch(example: Tensor, strict: bool) -> Code:
    """A named dimension."""
    return export(Doubling(), (example,), ({0: "batch"},), strict=strict).run


def leaves_batch_to_auto(example: Tensor, strict: bool) -> Code:
    """Dim.AUTO, which takes what the example shows."""
    auto = getattr(getattr(torch.export, "Dim", None), "AUTO", None)
    if auto is None:
        pytest.skip("no Dim.AUTO")
    program = torch.export.export(Doubling(), (example,), dynamic_shapes=({0: auto},), strict=strict)
    return program.module()


@STRICT
@catches(Twin(leaves_batch_to_auto, "raises"), declare=name_the_batch)
def test_batch_of_one_is_told(declare: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """A named dynamic batch whose example is 1 is refused at export or served, and not made static.

    pytorch/pytorch#133653, pytorch/pytorch#151094, pytorch/pytorch#140011. Refused on 2.1 to 2.15; Dim.AUTO (2.5) makes it
    static without a word, and the program raises at run time.
    """
    inputs = _batches(device, 1, 4)
    check_refused_or_general(lambda: declare(inputs["batch1"][0], strict), Doubling(), inputs, observe)


def exports_statically(example: Tensor, strict: bool) -> Code:
    """No dimension is named."""
    return export(Doubling(), (example,), strict=strict).run


@STRICT
@catches(Twin(exports_statically, "raises"), declare=name_the_batch)
def test_batch_of_two_serves_all(declare: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """A named dynamic batch whose example is 2 serves every batch.

    pytorch/pytorch#133653. 2.1 to 2.15, non-strict since 2.3; served 1 as well.
    """
    inputs = _batches(device, 2, 5, 9)
    check_generalizes(Doubling(), declare(inputs["batch2"][0], strict), inputs, observe)


class BranchesOnLength(nn.Module):
    """Another scale beyond 8, as long-rope has."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T)`."""
        return x * 0.5 if x.size(1) > 8 else x * 2


def _lengths(device: torch.device, *sizes: int) -> dict[str, tuple[Tensor, ...]]:
    return {f"length{n}": (uniform((2, n), str(n)).to(device),) for n in sizes}


def leave_length_unbounded(x: Tensor, strict: bool) -> Code:
    """The length may be anything."""
    return export(BranchesOnLength(), (x,), ({1: "length"},), strict=strict).run


def bound_length(x: Tensor, strict: bool) -> Code:
    """The length stays on one side of the branch."""
    return export(BranchesOnLength(), (x,), ({1: "length"},), strict=strict, bounds={"length": (2, 8)}).run


class KeepsSideOfExample(nn.Module):
    """The branch was decided before the export."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T)`."""
        return x * 2


def decides_branch_before(x: Tensor, strict: bool) -> Code:
    """The program of the example's side, for any length."""
    return export(KeepsSideOfExample(), (x,), ({1: "length"},), strict=strict).run


@STRICT
@catches(decides_branch_before, capture=leave_length_unbounded)
def test_branch_on_length_is_told(capture: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """A branch on a dynamic length is refused at export, and one side is not taken for all lengths.

    pytorch/pytorch#163791 (Phi's long-rope). UserError on 2.1 to 2.15.
    """
    inputs = _lengths(device, 4, 8, 12)
    check_refused_or_general(lambda: capture(inputs["length4"][0], strict), BranchesOnLength(), inputs, observe)


@STRICT
@catches(Twin(leave_length_unbounded, "raises"), decides_branch_before, capture=bound_length)
def test_bounded_branch_exports(capture: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """A length bounded to one side of a branch exports, serves its range, and is refused beyond.

    pytorch/pytorch#163791. 2.1 to 2.15, non-strict since 2.3; refusal is RuntimeError until 2.8, AssertionError since 2.9.
    """
    inputs = _lengths(device, 4, 2, 8)
    run = capture(inputs["length4"][0], strict)
    check_generalizes(BranchesOnLength(), run, inputs, observe)
    _, (beyond,) = _lengths(device, 9).popitem()
    with pytest.raises((RuntimeError, AssertionError)):
        run(beyond)


class Pairing(nn.Module):
    """Sums neighbours: the length must be even."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T)`."""
        return x.view(x.size(0), x.size(1) // 2, 2).sum(-1)


def derive_length(x: Tensor, strict: bool) -> Code:
    """The length is twice a dimension."""
    half = torch.export.Dim("half", min=1, max=64)
    try:
        length = 2 * half
    except TypeError:
        pytest.skip("torch.export.Dim cannot be derived from")
    return torch.export.export(Pairing(), (x,), dynamic_shapes=({1: length},), strict=strict).module()


def names_length_plainly(x: Tensor, strict: bool) -> Code:
    """The length may be odd, for all the program knows."""
    return export(Pairing(), (x,), ({1: "length"},), strict=strict).run


@STRICT
@requires("torch.export.Dim")
@catches(Twin(names_length_plainly, "raises"), capture=derive_length)
def test_divisible_length_is_derived(capture: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """A length that must be even is declared as twice a dimension; a plain one is refused at export, an odd input at run time.

    pytorch/pytorch#124502. Since 2.3, to 2.15.
    """
    inputs = _lengths(device, 6, 10, 7)
    check_generalizes(Pairing(), capture(inputs["length6"][0], strict), inputs, observe)


class DoublesColumns(nn.Module):
    """Takes each column for a pair of equal ones."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T)`."""
        return x * 2


def doubles_columns(x: Tensor, strict: bool) -> Code:
    """A program that takes odd lengths too."""
    return export(DoublesColumns(), (x,), ({1: "length"},), strict=strict).run


@STRICT
@catches(doubles_columns, capture=names_length_plainly)
def test_divisibility_is_told(capture: Code, strict: bool, device: torch.device, observe: Observe) -> None:
    """A length that must be even is refused at export when it is declared plainly, and no odd input is answered.

    pytorch/pytorch#124502. UserError on 2.1 to 2.15.
    """
    inputs = _lengths(device, 6, 10, 7)
    check_refused_or_general(lambda: capture(inputs["length6"][0], strict), Pairing(), inputs, observe)


class FlagFromSize(nn.Module):
    """is_causal from a comparison of sizes."""

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """`q` `(B, H, T, D)`, `k` `(B, H, S, D)`."""
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=self.flag(q))

    def flag(self, q: Tensor) -> Any:
        """Whether there is more than one query."""
        return q.shape[-2] > 1


class FlagOfExample(FlagFromSize):
    """is_causal as it was in the example."""

    def flag(self, q: Tensor) -> Any:
        """Decided."""
        return True


@STRICT
@catches(FlagOfExample, build=FlagFromSize)
def test_causal_flag_is_told(build: Callable[[], nn.Module], strict: bool, device: torch.device, observe: Observe) -> None:
    """A causal flag computed from a dynamic size is refused at export, never baked.

    pytorch/pytorch#108108, pytorch/pytorch#115262. 2.1 to 2.15.
    """
    q, k = uniform((1, 1, 4, 8)).to(device), uniform((1, 1, 6, 8), "k").to(device)
    inputs = {"prompt4": (q, k), "prompt3": (q[:, :, :3], k), "decode": (q[:, :, :1], k)}
    axes = ({2: "queries"}, {2: "keys"})
    bounds = {"queries": (1, 16), "keys": (1, 16)}
    check_refused_or_general(lambda: export(build(), (q, k), axes, strict=strict, bounds=bounds).run, FlagFromSize(), inputs, observe)
