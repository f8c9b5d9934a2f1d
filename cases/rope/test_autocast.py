"""Angles under autocast: a matrix product is cast down whatever its operands are, an elementwise one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache
from conformance.incell import catches, values
from conformance.instruments import rotation

Angles = Callable[[Tensor, Tensor], Tensor]


def multiplies_matrices(frequencies: Tensor, positions: Tensor) -> Tensor:
    """A matrix product, `(D/2, 1) @ (1, T)`."""
    return frequencies[:, None] @ positions[None, :]


def _without_autocast(frequencies: Tensor, positions: Tensor) -> Tensor:
    with torch.autocast(positions.device.type, enabled=False):
        return multiplies_matrices(frequencies, positions)


#: Three ways to write the product of frequencies and positions that autocast leaves alone.
PRODUCTS: dict[str, Angles] = {
    "outer": lambda frequencies, positions: frequencies[:, None] * positions[None, :],
    "einsum": lambda frequencies, positions: torch.einsum("i,j->ij", frequencies, positions),
    "disabled": _without_autocast,
}


def of_that_form(form: str) -> Angles:
    """The product as it stands in PRODUCTS."""
    return PRODUCTS[form]


def by_matrix_product(form: str) -> Angles:
    """A matrix product in its place."""
    return multiplies_matrices


def _autocast(device: torch.device) -> Any:
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return torch.autocast(device.type, dtype=torch.bfloat16)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"no bfloat16 autocast on {device.type}: {error}")


@values
@pytest.mark.parametrize("form", PRODUCTS)
@catches(by_matrix_product, choose=of_that_form)
def test_autocast_rounds_no_angle(choose: Callable[[str], Angles], form: str, device: torch.device) -> None:
    """Under bfloat16 autocast the angles of 8 positions from 65536 on stay float32 and distinct.

    huggingface/diffusers#13920, huggingface/diffusers#13922, huggingface/transformers#29285: a matrix product is cast down in spite of
    `.float()` on its operands, and merges all 8; an elementwise product and this einsum are not. Holds on 1.13 to 2.15.
    """
    positions = torch.arange(65536, 65544, device=device).float()
    frequencies = 10000.0 ** (torch.arange(0, 8, 2, device=device).float() / -8)
    with _autocast(device):
        angles = choose(form)(frequencies, positions)
    assert angles.dtype == torch.float32
    assert len(set(angles[0].tolist())) == 8


class GrowsByMatrixProduct(RotaryCache):
    """Grows by a matrix product, in a forward pass under autocast."""

    def grow_to(self, rows: int) -> None:
        """Hold `rows` rows."""
        if rows > self.rows:
            channels = torch.arange(0, self.rotary_dim, 2, device=self.cos.device).float()
            angles = torch.arange(rows, device=self.cos.device).float()[:, None] @ (self.base ** (channels / -self.rotary_dim))[None, :]
            self.cos, self.sin = angles.cos().to(self.cos.dtype), angles.sin().to(self.cos.dtype)


@values
@catches(GrowsByMatrixProduct, cache=RotaryCache)
def test_growth_under_autocast(cache: Callable[..., RotaryCache], device: torch.device) -> None:
    """A table that grows in a forward pass under autocast is the one that grows outside it: the error would stay after the pass.

    huggingface/diffusers#13920, huggingface/transformers#29285. Holds on 1.13 to 2.15.
    """
    table = cache(8, rows=8, device=device)
    with _autocast(device):
        table(4096)
    assert table.cos.dtype == torch.float32
    assert rotation.error(table.cos[:4096], rotation.angles(range(4096), 8).cos()) < 1e-3
