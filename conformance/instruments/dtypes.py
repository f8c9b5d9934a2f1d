"""The default dtype for a while, and a model in float64: constants that code makes follow the default dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """torch's default dtype is `dtype` inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def built_in_float64(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` gives under that default dtype, in float64, with the weights that it has in float32: what a build draws in another
    dtype are other numbers.
    """
    with default_dtype(torch.float32):
        narrow = build()
    with default_dtype(torch.float64):
        wide = build().double()
    with torch.no_grad():
        for parameter, drawn in zip(wide.parameters(), narrow.parameters()):
            parameter.copy_(drawn)
    return wide
