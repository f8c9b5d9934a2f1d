"""Which elements an initialisation never wrote, found by filling the memory with two patterns in turn.

One pattern cannot tell a forgotten element from one that is meant to hold it (NaN, zero, an integer's maximum). An element that
holds the first pattern after the first run and the second after the second was not written in either.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from conformance.instruments import weights

#: Fills by kind of dtype: floating point (and complex), integer, bool.
_FLOATS: tuple[float, float] = (float("nan"), 3.0)
_INTEGERS: tuple[int, int] = (77, 91)


def pattern(dtype: torch.dtype, which: int) -> float | int | bool:
    """Fill number `which` (0 or 1) for a tensor of `dtype`."""
    if dtype.is_floating_point or dtype.is_complex:
        return _FLOATS[which]
    return bool(which) if dtype == torch.bool else _INTEGERS[which]


@torch.no_grad()
def fill(module: nn.Module, which: int = 0) -> nn.Module:
    """Overwrite every parameter and buffer of `module`, non-persistent ones included, with fill `which`; returns `module`."""
    for _, tensor in _tensors(module):
        tensor.fill_(pattern(tensor.dtype, which))
    return module


@torch.no_grad()
def scatter(module: nn.Module, which: int = 0) -> nn.Module:
    """Overwrite every parameter and buffer of `module` with finite numbers that differ from element to element; returns `module`.

    What reads memory before it is written may not show it where that holds one number alone: of a constant there is no spread.
    """
    for name, tensor in _tensors(module):
        spread = weights.uniform(tensor.shape, name, seed=which + 1).to(tensor.device) * (which + 1.0)
        tensor.copy_(spread > 0 if tensor.dtype == torch.bool else spread if tensor.is_floating_point() else (spread * 50).round())
    return module


def untouched(fresh: Callable[[], nn.Module], initialise: Callable[[nn.Module], object]) -> list[str]:
    """Names, sorted, of tensors of which `initialise` leaves any element as memory was.

    `fresh` gives a materialised module; it is called twice. A tensor that is still on meta counts as left.
    """
    first, second = (_after(fresh, initialise, which) for which in (0, 1))
    return sorted(name for name in first if name not in second or _left(first[name], second[name]))


def _after(fresh: Callable[[], nn.Module], initialise: Callable[[nn.Module], object], which: int) -> dict[str, Tensor]:
    module = fill(fresh(), which)
    initialise(module)
    return dict(_tensors(module))


def _left(first: Tensor, second: Tensor) -> bool:
    if first.is_meta or second.is_meta:
        return True
    return bool((_holds(first, 0) & _holds(second, 1)).any())


def _holds(tensor: Tensor, which: int) -> Tensor:
    """Bool tensor: where `tensor` holds fill `which`."""
    fill_value = pattern(tensor.dtype, which)
    if fill_value != fill_value:  # NaN, which equals nothing
        return torch.isnan(tensor.detach())
    return tensor.detach() == fill_value


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]
