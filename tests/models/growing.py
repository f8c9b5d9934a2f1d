"""A model whose rotary-like table grows with the length: rightly in `build`, in another dtype in `build_forgetful`."""

import torch
from torch import nn


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 8)
        self.register_buffer("table", torch.zeros(0, 8, dtype=torch.bfloat16), persistent=False)

    def rows(self, count: int) -> torch.Tensor:
        angles = torch.arange(count, device=self.table.device)[:, None] * torch.linspace(0.1, 1.0, 8, device=self.table.device)
        return angles.cos().to(self.table.dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if tokens.size(1) > self.table.size(0):
            self.table = self.rows(tokens.size(1))
        return self.embedding(tokens) * self.table[: tokens.size(1)]


class Forgetful(Growing):
    def rows(self, count: int) -> torch.Tensor:
        return super().rows(count).float()


def build() -> nn.Module:
    return Growing()


def build_forgetful() -> nn.Module:
    return Forgetful()


def inputs(batch: int = 2, length: int = 6) -> torch.Tensor:
    return (torch.arange(batch * length) % 32).view(batch, length)
