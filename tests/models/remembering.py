"""Models that keep what they should not keep, or not as they keep it: each build is wrong in a way of its own."""

import torch
from torch import Tensor, nn


class Embedded(nn.Module):
    """Ids `(B, T)` to `(B, T, 16)`, with what `positions` adds."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(32, 16), nn.Linear(16, 16)

    def positions(self, x: Tensor) -> Tensor:
        """Of embedded ids `(B, T, 16)`: `(T, 16)`."""
        steps = torch.arange(x.size(1), device=x.device)[:, None] * torch.linspace(0.1, 1.0, 16, device=x.device)
        return steps.cos().to(x.dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """`ids` int64."""
        x = self.embedding(ids)
        return self.head(x + self.positions(x))


class Stretched(Embedded):
    """What a long input stretched stays stretched."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 6

    def positions(self, x: Tensor) -> Tensor:
        self.longest = max(self.longest, x.size(1))
        return super().positions(x) / self.longest


class ByLength(Embedded):
    """A dict of tables, which no cast reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = {}

    def positions(self, x: Tensor) -> Tensor:
        if x.size(1) not in self.tables:
            self.tables[x.size(1)] = super().positions(x)
        return self.tables[x.size(1)]


class InATuple(Embedded):
    """Two factors that are made once, in whatever mode that is."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = None

    def positions(self, x: Tensor) -> Tensor:
        if self.factors is None:
            self.factors = (torch.ones(2, device=x.device), torch.ones(16, device=x.device))
        return super().positions(x) + x * self.factors[1]


class Saved(Embedded):
    """A table that no checkpoint holds, until it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(0, 16), persistent=False)

    def positions(self, x: Tensor) -> Tensor:
        if x.size(1) > self.table.size(0):
            self.register_buffer("table", super().positions(x))
        return self.table[: x.size(1)]


class Running(Embedded):
    """A running scale that training moves, and that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def positions(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale = 0.5 * self.scale + float(x.detach().abs().mean())
        return super().positions(x) * self.scale


class Biased(nn.Module):
    """A bias from the mask that is kept while its shape fits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.bias = nn.Embedding(32, 16), None

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """`ids` and `mask` int64 `(B, T)`."""
        x = self.embedding(ids)
        if self.bias is None or self.bias.size(0) != len(mask) or self.bias.size(2) != mask.size(1):
            self.bias = torch.where(mask[:, None, :] == 0, -1e9, 0.0)
        return (x @ x.transpose(1, 2) + self.bias).softmax(-1) @ x


def stretched() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Stretched(), _ids()


def by_length() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return ByLength(), _ids()


def in_a_tuple() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return InATuple(), _ids()


def saved() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Saved(), _ids()


def running() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Running(), _ids()


def biased() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Biased(), (*_ids(), torch.ones(2, 6, dtype=torch.int64))


def _ids() -> "tuple[Tensor, ...]":
    return (torch.arange(12).view(2, 6),)
