"""A plain `raise` under `is_compiling()` in the forward that is compiled: whether it reaches the caller depends on how it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.capturing import is_compiling
from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.refusing import check_refused

Code = Callable[..., Any]


def portable() -> bool:
    """torch.compiler's answer, or dynamo's."""
    probe = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return bool(probe() if probe is not None else torch._dynamo.is_compiling())


class Raises(nn.Module):
    """Tables in the compiled module itself, and a plain `raise` where they would have to grow."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.tables = RotaryCache(4, rows=8, device=device)

    def grow(self, rows: int) -> None:
        """Put longer tables in place."""
        self.tables.cos, self.tables.sin = self.tables.at(torch.arange(rows, device=self.tables.cos.device))

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        if x.size(1) > self.tables.cos.size(0):
            if torch._dynamo.is_compiling():
                raise RuntimeError("rotary table too small while compiling")
            self.grow(2 * x.size(1))
        return rotate(x, self.tables.cos[: x.size(1)], self.tables.sin[: x.size(1)])


class RaisesPortably(Raises):
    """The same, asked in a function that works without torch.compiler."""

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        if x.size(1) > self.tables.cos.size(0):
            if portable():
                raise RuntimeError("rotary table too small while compiling")
            self.grow(2 * x.size(1))
        return rotate(x, self.tables.cos[: x.size(1)], self.tables.sin[: x.size(1)])


class Swallows(Raises):
    """The `raise` inside its own `try`."""

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        if x.size(1) > self.tables.cos.size(0):
            try:
                if torch._dynamo.is_compiling():
                    raise RuntimeError("rotary table too small while compiling")
            except Exception:
                pass
            self.grow(2 * x.size(1))
        return rotate(x, self.tables.cos[: x.size(1)], self.tables.sin[: x.size(1)])


class RaisesByName(Raises):
    """The same, asked by a function that was imported by name."""

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        if x.size(1) > self.tables.cos.size(0):
            if is_compiling():
                raise RuntimeError("rotary table too small while compiling")
            self.grow(2 * x.size(1))
        return rotate(x, self.tables.cos[: x.size(1)], self.tables.sin[: x.size(1)])


FORMS: dict[str, Code] = {"dynamo": Raises, "portable": RaisesPortably, "imported": RaisesByName}


def in_its_form(form: str) -> Code:
    """The module as it stands in FORMS."""
    return FORMS[form]


def swallowed(form: str) -> Code:
    """The same in a `try`."""
    return Swallows


@values
@requires("compile")
@uncounted("what is measured is a compiler")
@pytest.mark.parametrize("form", FORMS)
@catches(swallowed, choose=in_its_form)
def test_raise_in_the_compiled_forward_native(choose: Code, form: str, device: torch.device) -> None:
    """A plain `raise` under `is_compiling()` in the forward that was compiled itself reaches the caller.

    karpathy/nanochat#520. Asked by an imported name it never fires since 2.4: dynamo gives up the frame, runs it uncompiled, and only
    a function that names `torch` is then compiled by itself. On 2.0 dynamo cannot follow the portable question.
    """
    module = choose(form)(device)
    short, long = (torch.ones(1, length, 1, 4, device=device) for length in (4, 12))
    check_refused(module, (short,), (long,), ["too small"])
    assert module.tables.rows == 8
