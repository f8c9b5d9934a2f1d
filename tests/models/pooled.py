"""A small convolutional net whose pooling does not divide: 4 x 4 features to 3 x 3, which MPS refuses."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Images `(B, 3, 10, 10)` to `(B, 5)`."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.pool = nn.AdaptiveAvgPool2d(3)
        self.head = nn.Linear(72, 5)

    def forward(self, images: Tensor) -> Tensor:
        """`images` float32."""
        pooled = self.pool(self.features(images))
        return self.head(pooled.flatten(1))


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The net and an example."""
    return Net(), (torch.linspace(-1, 1, 600).view(2, 3, 10, 10),)
