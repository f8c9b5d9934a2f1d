"""A table must not grow while code is captured: refusals that reach the caller, and refusals that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.capturing import is_compiling
from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.refusing import check_refused

Code = Callable[..., Any]


class Cache(RotaryCache):
    """The guard's tables, which grow whatever is captured unless `refuse` says no."""

    def refuse(self) -> None:
        """Say no by raising."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows > self.rows:
            self.refuse()
            self.cos, self.sin = self.at(torch.arange(2 * rows, device=self.cos.device))

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions from `offset` on."""
        self.grow_to(offset + length)
        return self.cos[offset : offset + length], self.sin[offset : offset + length]


class SwallowsItsRefusal(Cache):
    """Raises inside its own `try`, so that a torch without dynamo does not matter, and nothing else does either."""

    def refuse(self) -> None:
        """Raise, and catch it."""
        try:
            if is_compiling():
                raise RuntimeError("rotary table too small while compiling")
        except Exception:
            pass


class ImportsAndSwallows(Cache):
    """The same, with dynamo imported where it is asked."""

    def refuse(self) -> None:
        """Import, raise, and catch it."""
        try:
            import torch._dynamo as dynamo

            if dynamo.is_compiling():
                raise RuntimeError("rotary table too small while compiling")
        except Exception:
            pass


class AsksTheWrongQuestion(Cache):
    """Asks the TorchScript tracer, which knows nothing of torch.compile."""

    def refuse(self) -> None:
        """Raise under torch.jit.trace."""
        if torch.jit.is_tracing():
            raise RuntimeError("rotary table too small while tracing")


class Turning(nn.Module):
    """Heads turned by a cache."""

    def __init__(self, cache: RotaryCache) -> None:
        super().__init__()
        self.rotary = cache

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        cos, sin = self.rotary(x.size(1))  # unpacked here: `rotate(x, *...)` after a graph break is an AssertionError in dynamo 2.2
        return rotate(x, cos, sin)


def _check(cache: RotaryCache, device: torch.device) -> None:
    short, long = (torch.ones(1, length, 1, 4, device=device) for length in (4, 12))
    check_refused(Turning(cache), (short,), (long,), ["too small", "exceeds dimension size"])
    assert cache.rows == 8


@values
@requires("compile")
@uncounted("what is measured is a compiler")
@catches(SwallowsItsRefusal, ImportsAndSwallows, AsksTheWrongQuestion, cache=RotaryCache)
def test_growth_while_compiling_is_refused(cache: Code, device: torch.device) -> None:
    """A compiled call that needs more rows than the table holds raises, and the table keeps its 8 rows.

    karpathy/nanochat#520 (the refusal sat in its own try/except). Holds on 2.0 to 2.15, without `fullgraph` too.
    """
    _check(cache(4, rows=8, device=device), device)


class RaisesByQualifiedName(Cache):
    """Says no with a plain `raise`, the question asked as `torch._dynamo.is_compiling()`."""

    def refuse(self) -> None:
        """Raise while compiling."""
        if torch._dynamo.is_compiling():
            raise RuntimeError("rotary table too small while compiling")


class RaisesByImportedName(Cache):
    """Says no with a plain `raise`, the question asked by a function that was imported by name."""

    def refuse(self) -> None:
        """Raise while compiling."""
        if is_compiling():
            raise RuntimeError("rotary table too small while compiling")


CACHES: dict[str, Code] = {"qualified": RaisesByQualifiedName, "imported": RaisesByImportedName}


def of_that_form(form: str) -> Code:
    """The cache as it stands in CACHES."""
    return CACHES[form]


def swallowed_there(form: str) -> Code:
    """The same in a `try`."""
    return SwallowsItsRefusal


@values
@requires("compile")
@uncounted("what is measured is a compiler")
@pytest.mark.parametrize("form", CACHES)
@catches(swallowed_there, choose=of_that_form)
def test_raise_in_a_submodule_native(choose: Code, form: str, device: torch.device) -> None:
    """A plain `raise` under `is_compiling()` in a submodule of what was compiled reaches the caller.

    karpathy/nanochat#520. Asked by an imported name it fires until 2.3 and never since 2.4: the table grows in silence.
    """
    _check(choose(form)(4, rows=8, device=device), device)


class ImportsWhereItGrows(RotaryCache):
    """Imports dynamo where it is needed: `torch` becomes a local name of the whole method."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        with torch.no_grad():  # noqa: F823 -- the mistake
            if rows > self.rows:
                import torch._dynamo

                if not torch._dynamo.is_compiling():
                    self._write(rows, self.cos.dtype)


@values
@catches(Twin(ImportsWhereItGrows, "raises"), cache=RotaryCache)
def test_import_hides_no_name(cache: Code, device: torch.device) -> None:
    """A table grows on a release and in a process that never imported dynamo, and `torch` is torch in the whole method.

    karpathy/nanochat#520 (`import torch._dynamo` in the method). UnboundLocalError on 1.13 to 2.15.
    """
    table = cache(4, rows=8, device=device)
    table.grow_to(20)
    assert rotation.error(table.cos[:20], rotation.angles(range(20), 4).cos()) < 1e-5
