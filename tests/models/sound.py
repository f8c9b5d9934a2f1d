"""A model that holds, with keyword inputs, a mask among them, and a dict for an answer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 8)
        self.head = nn.Linear(8, 32)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> "dict[str, torch.Tensor]":
        hidden = self.embedding(tokens) * mask.unsqueeze(-1)
        return {"logits": self.head(hidden), "pooled": hidden.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)}


def build() -> "tuple[nn.Module, dict[str, torch.Tensor]]":
    return Model(), {"tokens": torch.arange(12).view(2, 6), "mask": torch.ones(2, 6, dtype=torch.int64)}
