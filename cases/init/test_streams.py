"""Random streams: explicit generators, prefixes, and the epochs of dropout."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

from conformance.incell import catches, host
from conformance.instruments.bits import same_bits

Fill = Callable[..., torch.Tensor]


def draw_from_own_generator(fill: Fill, tensor: torch.Tensor) -> torch.Tensor:
    """A generator of its own, made and seeded for this draw."""
    return fill(tensor, generator=torch.Generator().manual_seed(7))


def seeds_the_global_stream(fill: Fill, tensor: torch.Tensor) -> torch.Tensor:
    """Seed everybody's generator."""
    torch.manual_seed(7)
    return fill(tensor)


_SHARED = torch.Generator()


def shares_one_generator(fill: Fill, tensor: torch.Tensor) -> torch.Tensor:
    """One generator for all draws: each goes on where the last one ended."""
    return fill(tensor, generator=_SHARED)


@host
@pytest.mark.parametrize(
    "initialiser",
    ["normal_", "uniform_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_"],
)
@catches(seeds_the_global_stream, shares_one_generator, draw=draw_from_own_generator)
def test_generator_leaves_global_stream(draw: Callable[[Fill, torch.Tensor], torch.Tensor], initialiser: str) -> None:
    """An initialiser with a generator of its own repeats, and leaves the global random stream alone.

    API feature: `generator=` came to trunc_normal_ with 2.1 and to the others with 2.2.
    """
    fill = getattr(nn.init, initialiser)
    if "generator" not in inspect.signature(fill).parameters:
        pytest.skip(f"torch.nn.init.{initialiser} takes no generator")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = draw(fill, torch.empty(4, 4)), draw(fill, torch.empty(4, 4))
    assert same_bits(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def slice_one_buffer(count: int) -> torch.Tensor:
    """Cut from one draw of fixed size."""
    return torch.randn(64)[:count]


def draw_sixteen_at_least(count: int) -> torch.Tensor:
    """Never draw fewer than 16."""
    return torch.randn(max(count, 16))[:count]


def draws_as_many_as_asked(count: int) -> torch.Tensor:
    """Draw exactly as many as asked."""
    return torch.randn(count)


def _check_prefix(draw: Callable[[int], torch.Tensor], sizes: tuple[int, ...]) -> None:
    drawn = []
    for count in sizes:
        torch.manual_seed(0)
        drawn.append(draw(count))
    for shorter, longer in itertools.pairwise(drawn):
        torch.testing.assert_close(longer[: shorter.numel()], shorter, rtol=0, atol=0)


@host
@catches(draws_as_many_as_asked, draw=slice_one_buffer)
def test_padded_table_keeps_its_rows(draw: Callable[[int], torch.Tensor]) -> None:
    """A table padded to a larger size keeps the numbers it had, when both are cut from one draw of fixed size.

    pytorch/pytorch#80202: randn(8) is not the start of randn(16) on the CPU. Holds on 1.13 to 2.15.
    """
    _check_prefix(draw, (8, 16, 24))


@host
@catches(draws_as_many_as_asked, draw=draw_sixteen_at_least)
def test_prefix_holds_from_sixteen(draw: Callable[[int], torch.Tensor]) -> None:
    """From 16 elements on, a shorter `randn` is the start of a longer one on the CPU; below, it is not.

    pytorch/pytorch#80202. Holds on 1.13 to 2.15 for multiples of 16.
    """
    _check_prefix(draw, (8, 16, 32, 64))


#: Which of 24 elements dropout(0.5) keeps on the CPU under seed 0.
KEPT = "001000110111101111001010"


def seed_then_drop() -> torch.Tensor:
    """Seed, then drop."""
    torch.manual_seed(0)
    return functional.dropout(torch.ones(24), 0.5)


def draws_once_before() -> torch.Tensor:
    """Draw something between the seed and the dropout."""
    torch.manual_seed(0)
    torch.rand(1)
    return functional.dropout(torch.ones(24), 0.5)


@host
@catches(draws_once_before, drop=seed_then_drop)
def test_dropout_epoch(drop: Callable[[], torch.Tensor], observe: Callable[..., None]) -> None:
    """CPU dropout under one seed keeps the same elements as torch 1.13 and 2.7 do.

    pytorch/pytorch#154031, pytorch/pytorch#146174: 2.0 to 2.6 drew from MKL's stream and keep others, so masks compare only
    within 2.0 to 2.6 and within 1.13 and 2.7 to 2.15.
    """
    kept = "".join(str(int(element != 0)) for element in drop().tolist())
    observe("kept", kept)
    assert kept == KEPT
