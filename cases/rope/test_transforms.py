"""Tables that grow inside something that runs the code on other than real tensors: a dry run, a function transform."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Build = Callable[..., Any]


class GrowsRegardless(RotaryCache):
    """Grows whatever kind of tensor the tables come out as."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows > self.rows:
            self.cos, self.sin = self.at(torch.arange(rows, device=self.cos.device))


@values
@requires("torch._subclasses.FakeTensorMode")
@uncounted("a dry run is a dispatch mode itself")
@catches(GrowsRegardless, cache=RotaryCache)
def test_dry_run_leaves_real_tables(cache: Build, device: torch.device) -> None:
    """A dry run with fake tensors, as tools estimate memory, leaves a module whose tables hold numbers.

    Observed here: a table grown in FakeTensorMode stays fake, and real inputs then give fake results in silence, on 2.0 to 2.15.
    """
    mode = torch._subclasses.FakeTensorMode
    if "allow_non_fake_inputs" not in inspect.signature(mode.__init__).parameters:
        pytest.skip("FakeTensorMode takes no real tensors")
    table = cache(4, rows=8, device=device)
    with contextlib.suppress(RuntimeError), mode(allow_non_fake_inputs=True):
        rotate(torch.ones(1, 20, 1, 4, device=device), *table(20))
    got = table(6)[0]
    assert type(got) is Tensor
    assert rotation.error(got, rotation.angles(range(6), 4).cos()) < 1e-5


class MakesTablesOfItsInput:
    """Angles made with arithmetic on the input, so that they are of its dtype and on its device."""

    def __init__(self, head_dim: int, rows: int, device: torch.device) -> None:
        self.kept: Any = None

    def tables(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, kept."""
        if self.kept is None or self.kept.size(0) < x.size(1):
            frequencies = 10000.0 ** (torch.arange(0, x.size(-1), 2, device=x.device).float() / -x.size(-1))
            self.kept = (x.select(0, 0)[..., :1, 0] * 0 + 1).cumsum(0).sub(1) * frequencies
        return self.kept[: x.size(1)].cos(), self.kept[: x.size(1)].sin()


class MakesTablesOfNumbers(MakesTablesOfItsInput):
    """Angles made of positions alone."""

    def __init__(self, head_dim: int, rows: int, device: torch.device) -> None:
        super().__init__(head_dim, rows, device)
        self.cache = RotaryCache(head_dim, rows=rows, device=device)

    def tables(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the guard."""
        cosines: tuple[Tensor, Tensor] = self.cache(x.size(1))
        return cosines


@values
@requires("torch.func")
@uncounted("a transform wraps what runs")
@catches(Twin(MakesTablesOfItsInput, "raises"), build=MakesTablesOfNumbers)
def test_growth_inside_vmap(build: Build, device: torch.device) -> None:
    """A table that grew inside `torch.vmap` serves the calls after it.

    Observed here: one made of the mapped input is a tensor of that transform, and raises outside it, on 2.0 to 2.15.
    """
    cache, x = build(4, 2, device), uniform((1, 6, 1, 4)).to(device)
    torch.vmap(lambda one: rotate(one, *cache.tables(one)))(x.expand(3, 1, 6, 1, 4))
    assert rotation.error(rotate(x, *cache.tables(x)), rotation.turned(x, range(6))) < 1e-5
