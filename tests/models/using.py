"""Models that using changes: weights normalised in place, an answer in kept memory, a product of weights kept from the first call."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Normalising(nn.Module):
    """Divides its weight by its norm in each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """`(..., 4)` to `(..., 4)`."""
        with torch.no_grad():
            self.head.weight.div_(self.head.weight.norm())
        return self.head(x)


class Reusing(nn.Module):
    """Answers in memory that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.kept: dict[torch.Size, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """`(..., 4)` to `(..., 4)`."""
        return self.kept.setdefault(x.shape, torch.empty_like(x)).copy_(self.head(x).detach())


class Fused(nn.Module):
    """Keeps the product of two weights from the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
        self.product: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """`(..., 4)` to `(..., 4)`."""
        if self.product is None:
            self.product = (self.up.weight @ self.down.weight).detach()
        return functional.linear(x, self.product)


def _numbers() -> tuple[Tensor, ...]:
    return (torch.arange(24.0).view(2, 3, 4).sin(),)


def normalising() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Its weights are others after an answer."""
    return Normalising(), _numbers()


def reusing() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Its first answer is another after the second."""
    return Reusing(), _numbers()


def fused() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Weights that are loaded later are without effect."""
    return Fused(), _numbers()
