"""GroupNorm, bicubic upsampling and a transposed convolution, trained with RMSprop: MPS has bicubic since 2.6."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


class Net(nn.Module):
    """Images `(B, 3, 6, 6)` to `(B, 2, 25, 25)`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.last = nn.ConvTranspose2d(8, 2, 3, stride=2)

    def forward(self, images: Tensor) -> Tensor:
        """`images` float32."""
        larger = functional.interpolate(self.norm(self.first(images)), scale_factor=2.0, mode="bicubic")
        return self.last(larger)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """What an audit steps with."""
    return torch.optim.RMSprop(parameters, lr=0.01)


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The net and an example."""
    return Net(), (torch.linspace(-1, 1, 216).view(2, 3, 6, 6),)
