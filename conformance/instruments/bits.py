"""Comparing bits on the host: what a case does to compare is not what it measures, so it must not run on the cell's device."""

from __future__ import annotations

import torch


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of any device hold the same values in the same shape and dtype (NaN is not equal to itself)."""
    return first.dtype == second.dtype and torch.equal(first.detach().cpu(), second.detach().cpu())
