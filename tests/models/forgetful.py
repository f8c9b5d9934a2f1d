"""A model whose init forgets a scalar, given together with its inputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.temperature = nn.Parameter(torch.ones(()))

    def init_weights(self) -> None:
        self.layer.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) / self.temperature


def build() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Model(), (torch.linspace(-1, 1, 8).view(2, 4),)
