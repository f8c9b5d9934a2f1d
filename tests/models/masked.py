"""Attention that hides what is masked with minus infinity: a row that is hidden whole becomes NaN."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embedding(ids)
        scores = (x @ x.transpose(1, 2)).masked_fill(attention_mask[:, None] == 0, float("-inf"))
        return self.head(scores.softmax(-1) @ x)


def build() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Net(), (torch.arange(12).view(2, 6), torch.ones(2, 6, dtype=torch.int64))
