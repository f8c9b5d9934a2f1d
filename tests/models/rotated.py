"""Rotary positions, counted as they should be and as they should not."""

import torch
from torch import Tensor, nn


class Rotary(nn.Module):
    """Turns halves of `(B, T, 16)` by position.

    `dtype` is what angles are computed in; None: that of the frequencies, which goes with the model.
    """

    def __init__(self, dtype: "torch.dtype | None") -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(8) / 8)), persistent=False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """`x` of any float dtype."""
        dtype = self.dtype or self.inv_freq.dtype
        exact = 1.0 / (10000 ** (torch.arange(8, dtype=dtype, device=x.device) / 8)) if self.dtype else self.inv_freq
        angles = torch.outer(torch.arange(x.size(1), dtype=dtype, device=x.device), exact)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Net(nn.Module):
    """Ids `(B, T)` to `(B, T, 32)`."""

    def __init__(self, dtype: "torch.dtype | None") -> None:
        super().__init__()
        self.embedding, self.rotary, self.head = nn.Embedding(32, 16), Rotary(dtype), nn.Linear(16, 32)

    def forward(self, ids: Tensor) -> Tensor:
        """`ids` int64."""
        return self.head(self.rotary(self.embedding(ids)))


def exact() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Net(torch.float32), (torch.arange(16).view(2, 8),)


def cast() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Net(None), (torch.arange(16).view(2, 8),)
