"""Two layers of LSTM over embeddings, trained with SGD: every operator of it has been on MPS since 2.1."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Ids `(B, T)` to `(B, T, 9)`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.layers = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 9)

    def forward(self, ids: Tensor) -> Tensor:
        """`ids` int64."""
        return self.head(self.layers(self.embedding(ids))[0])


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """What an audit steps with."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The net and an example."""
    return Net(), (torch.arange(10).view(2, 5) % 9,)
