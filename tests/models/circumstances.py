"""Models whose answer, or whose compiled code, depends on what it should not: each build is wrong in a way of its own."""

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """`(B, T, 8)` to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls, self.history = nn.Linear(8, 8), 0, []


class Recording(Layer):
    """Another answer where no gradient is wanted."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        if torch.is_grad_enabled():
            return self.layer(x)
        return self.layer(x).relu()


class Trying(Layer):
    """numpy refuses what is on the graph."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        h = self.layer(x)
        try:
            scale = 2.0 if h.numpy() is not None else 1.0
        except RuntimeError:
            scale = 1.0
        return h * scale


class Strided(Layer):
    """Takes its input for contiguous."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        return self.layer(x.as_strided(x.shape, (x.size(1) * x.size(2), x.size(2), 1)))


class Counting(Layer):
    """A number that changes at each call."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        self.calls += 1
        return self.layer(x) if self.calls % 1000 else x


class Listing(Layer):
    """A list that grows at each call."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        h = self.layer(x)
        self.history.append(h.mean())
        return h


class Ordered(nn.Module):
    """Its init walks over a set, whose order is each process's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("q", "k", "v", "gate", "up", "down", "out", "head")})

    def init_weights(self) -> None:
        for name in set(self.layers):
            nn.init.normal_(self.layers[name].weight)
            nn.init.zeros_(self.layers[name].bias)

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        return sum(layer(x) for layer in self.layers.values())


class Reading(nn.Module):
    """Its init scales one weight by another that is not written yet."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def init_weights(self) -> None:
        nn.init.normal_(self.head.weight)
        with torch.no_grad():
            self.head.weight.div_(self.body.weight.std().clamp(min=1e-3))
        nn.init.normal_(self.body.weight)

    def forward(self, x: Tensor) -> Tensor:
        """`x` floats."""
        return self.head(self.body(x))


def ordered() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Ordered(), _features()


def reading() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Reading(), _features()


def recording() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Recording(), _features()


def trying() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Trying(), _features()


def strided() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Strided(), _features()


def counting() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Counting(), _features()


def listing() -> "tuple[nn.Module, tuple[Tensor, ...]]":
    return Listing(), _features()


def _features() -> "tuple[Tensor, ...]":
    return (torch.linspace(-3, 3, 96).sin().view(2, 6, 8),)
