"""Regions of a forward pass, without gradients or under autocast: which captured programs keep them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.capture import export, trace

pytestmark = [values, uncounted("what is measured is a tracer")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def _traced(module: nn.Module, x: Tensor) -> Code:
    return trace(module, (x,)).program  # type: ignore[no-any-return]


def _symbolic(module: nn.Module, x: Tensor) -> Code:
    return torch.fx.symbolic_trace(module)


CAPTURES: dict[str, Callable[[nn.Module, Tensor], Code]] = {"trace": _traced, "fx": _symbolic}
STRICT = pytest.mark.parametrize("strict", [True, False], ids=["strict", "nonstrict"])


class Frozen(nn.Module):
    """A backbone that is kept out of training, and a head that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False)

    def features(self, x: Tensor) -> Tensor:
        """The backbone's answer, cut off from its weights."""
        return self.backbone(x).detach()  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, 3)`."""
        return self.head(self.features(x) * x)  # type: ignore[no-any-return]


class FrozenByMode(Frozen):
    """Kept out by a grad mode: no operation, so nothing to record."""

    def features(self, x: Tensor) -> Tensor:
        """The backbone's answer, computed without gradients."""
        with torch.no_grad():
            return self.backbone(x)  # type: ignore[no-any-return]


def _check_frozen(capture: Callable[[nn.Module, Tensor], Code], build: Callable[[], Frozen], device: torch.device) -> None:
    module, x = build().to(device), torch.ones(2, 3, device=device, requires_grad=True)
    captured = capture(module, x)
    with torch.no_grad():
        through_product = module.head.weight * module.backbone(x)
    captured(x).sum().backward()
    parameters = dict(captured.named_parameters())  # type: ignore[attr-defined]
    assert {name for name, parameter in parameters.items() if parameter.grad is not None} == {"head.weight"}
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), through_product.cpu())


@pytest.mark.parametrize("capture", CAPTURES)
@catches(FrozenByMode, build=Frozen)
def test_detached_part_stays_frozen(build: Callable[[], Frozen], capture: str, device: torch.device) -> None:
    """A part that `detach` cuts off gets no gradient from the traced program, and passes none on.

    pytorch/pytorch#62043, pfnet/pytorch-pfn-extras#644: a block of `no_grad` is no operation, and traced programs train what it kept
    frozen, in silence. 1.13 to 2.15.
    """
    _check_frozen(CAPTURES[capture], build, device)


class Learning(Frozen):
    """Nothing is cut off."""

    def features(self, x: Tensor) -> Tensor:
        """The backbone's answer."""
        return self.backbone(x)  # type: ignore[no-any-return]


@functools.cache
def _trains_exported() -> bool:
    """Whether an exported program passes gradients to its weights: not on 2.1."""
    run = _same_parameters(layer := nn.Linear(1, 1), export(layer, (torch.ones(1, 1),)).run)
    return bool(run(torch.ones(1, 1)).requires_grad)


def _same_parameters(module: nn.Module, run: Code) -> Code:
    """An exported program that may keep its parameters for itself, with the module's names for them."""
    run.named_parameters = getattr(run, "named_parameters", module.named_parameters)  # type: ignore[attr-defined]
    return run


@requires("export")
@STRICT
@catches(Learning, build=FrozenByMode)
def test_export_keeps_no_grad(build: Callable[[], Frozen], strict: bool, device: torch.device) -> None:
    """A block of `no_grad` is part of an exported program: what it kept frozen stays so.

    pytorch/pytorch#62043 is what torch.fx does. Kept on 2.4 to 2.15; dropped in silence on 2.2 and 2.3, where the strict mode
    of 2.3 refuses; programs of 2.1 have no gradients at all.
    """
    if not _trains_exported():
        pytest.skip("exported programs have no gradients")
    _check_frozen(lambda module, x: _same_parameters(module, export(module, (x.detach(),), strict=strict).run), build, device)


class Mixed(nn.Module):
    """A layer under autocast, behind it one in full precision."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.full = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` `(B, 3)`."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            low = self.low(x)
        return low, self.full(low.float())


class AllInFullPrecision(Mixed):
    """The program that a capture leaves which drops the block."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` `(B, 3)`."""
        low = self.low(x)
        return low, self.full(low)


class AllInLowPrecision(Mixed):
    """The program that a capture leaves which never ends the block."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` `(B, 3)`."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            low = self.low(x)
            return low, self.full(low)


def _example(device: torch.device) -> Tensor:
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return torch.ones(2, 3, device=device)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"no bfloat16 autocast on {device.type}: {error}")


PROGRAMS: dict[str, Callable[[nn.Module, Tensor], Code]] = {
    "trace": _traced,
    "strict": lambda module, x: export(module, (x,), strict=True).run,
    "nonstrict": lambda module, x: export(module, (x,), strict=False).run,
}


@pytest.mark.parametrize("capture", PROGRAMS)
@catches(AllInFullPrecision, AllInLowPrecision, build=Mixed)
def test_autocast_is_part_of_the_program(build: Callable[[], nn.Module], capture: str, device: torch.device) -> None:
    """A block of autocast is part of the program: its layers answer in bfloat16, those behind it in float32.

    pytorch/pytorch#131829, pytorch/pytorch#140589, pytorch/pytorch#151001. Traced on 1.13 to 2.15. Exported, not strict:
    dropped in silence on 2.4 and 2.5, right since. Strict: refused on 2.4, dropped in silence on 2.6 and 2.7, and since 2.8 the program
    refuses its own input.
    """
    x = _example(device)
    program = PROGRAMS[capture](build().to(device), x)
    assert [part.dtype for part in program(x)] == [torch.bfloat16, torch.float32]
