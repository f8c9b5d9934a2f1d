"""Masks of integers and of bools: the same numbers, other meanings."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conformance.incell import catches, values
from conformance.incell.marks import Twin

Idiom = Callable[..., Tensor]


def negate_as_bool(mask: Tensor) -> Tensor:
    """A bool mask, negated."""
    return ~mask.bool()


def negates_bits(mask: Tensor) -> Tensor:
    """All bits of 1 are flipped: -2, which is true as well."""
    return (~mask).bool()


def subtracts_from_one(mask: Tensor) -> Tensor:
    """Right for integers of 0 and 1; bools refuse."""
    return (1 - mask.bool()).bool()


@values
@catches(negates_bits, Twin(subtracts_from_one, "raises"), negate=negate_as_bool)
def test_integer_mask_is_negated(negate: Idiom, device: torch.device) -> None:
    """The complement of an attention mask of int64 is true where the mask is 0, and nowhere else.

    Observed on 1.13 to 2.15: `~` flips bits of integers, so its result is true everywhere.
    """
    assert negate(torch.tensor([1, 0, 1], device=device)).tolist() == [False, True, False]


def select_by_bool(x: Tensor, mask: Tensor) -> Tensor:
    """Rows where the mask is true."""
    return x[mask.bool()]


def selects_by_number(x: Tensor, mask: Tensor) -> Tensor:
    """Rows number 1, 0 and 1."""
    return x[mask]


@values
@catches(selects_by_number, select=select_by_bool)
def test_integer_mask_selects(select: Idiom, device: torch.device) -> None:
    """A mask of int64 selects rows once it is bool; as it is, it is an index.

    Observed on 1.13 to 2.15.
    """
    x = torch.arange(3.0, device=device)
    assert select(x, torch.tensor([1, 0, 1], device=device)).tolist() == [0.0, 2.0]


def join_bools(first: Tensor, second: Tensor) -> Tensor:
    """Both must hold."""
    return first.bool() & second.bool()


def joins_bits(first: Tensor, second: Tensor) -> Tensor:
    """1 and 2 have no bit in common."""
    return (first & second).bool()


@values
@catches(joins_bits, join=join_bools)
def test_counts_join_as_masks(join: Idiom, device: torch.device) -> None:
    """Two masks that hold counts, as segment ids do, are both true where neither count is 0.

    Observed on 1.13 to 2.15: `&` joins the bits of integers.
    """
    first, second = (torch.tensor(counts, device=device) for counts in ([1, 0, 2], [2, 1, 2]))
    assert join(first, second).tolist() == [True, False, True]
