"""Models whose build draws more than matrices: a GRU with its four biases, and features that no checkpoint holds."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tagger(nn.Module):
    """Two layers of a GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.gate = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, length, 6)` to `(batch, length, 8)`."""
        return self.gru(x)[0] * self.gate


class RandomFeatures(nn.Module):
    """A projection drawn anew in each build, left out of the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("projection", torch.randn(6, 4), persistent=False)
        self.order = torch.randperm(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """`(..., 6)` to `(..., 2)`."""
        return self.head((x @ self.projection).cos()[..., self.order])


def gru() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Right in every way."""
    return Tagger(), (torch.randn(2, 5, 6),)


def features() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Wrong in one way: a loaded copy has other features."""
    return RandomFeatures(), (torch.randn(2, 5, 6),)
