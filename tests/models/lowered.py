"""Three models that do not go down to MLIR, each with one wrong line deep in a chain of calls."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Pools(nn.Module):
    """Pools by a median, three calls down."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        return x + self.summary(x * 2)

    def summary(self, x: Tensor) -> Tensor:
        """What is said of a sequence."""
        return self.middle(torch.relu(x)).unsqueeze(-1)

    def middle(self, x: Tensor) -> Tensor:
        """Its middle."""
        return x.median(-1)[0]  # the wrong line: no such op in the torch dialect


class Scores(nn.Module):
    """Scales its scores by a size, two calls down."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        return torch.softmax(self.scores(x), -1) @ x

    def scores(self, x: Tensor) -> Tensor:
        """Each position with each."""
        return self.scaled(x) @ x.transpose(1, 2)

    def scaled(self, x: Tensor) -> Tensor:
        """So that the variance is 1."""
        return x * x.size(-1) ** -0.5  # the wrong line: a power of a tensor of integers, while tracing


class Flattens(nn.Module):
    """Flattens batch and length before a linear layer, in a block of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        return x + self.inner(x)


class Inner(nn.Module):
    """The block inside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        return self.linear(self.rows(x)).view(x.shape)

    def rows(self, x: Tensor) -> Tensor:
        """All positions of all sequences."""
        return x.reshape(-1, x.size(-1))  # the wrong line: torch-mlir takes one of two open sizes for 1


def inputs(batch: int = 2, length: int = 7) -> tuple[Tensor, ...]:
    """float32 `(B, T, 4)` between -1 and 1."""
    return (torch.linspace(-1, 1, batch * length * 4).view(batch, length, 4),)
