"""A model with one wrong line: a size that becomes a Python number, deep in a call chain."""

import torch
from torch import nn


def positions(count: int) -> torch.Tensor:
    return torch.arange(count)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = int(x.size(1))
        return self.project(x + 0.1 * positions(length).type_as(x)[None, :, None])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 8)
        self.mixer = Mixer()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.mixer(self.embedding(tokens))


def build() -> nn.Module:
    return Model()


def inputs(batch: int = 2, length: int = 6) -> torch.Tensor:
    return (torch.arange(batch * length) % 32).view(batch, length)
