"""What a program answers with: a program of the torch dialect answers with tensors, and a model with containers of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from conformance.incell import catches, host, requires
from conformance.incell.marks import Twin
from conformance.instruments.lowering import routes
from conformance.instruments.lowering.journey import Journey
from conformance.instruments.lowering.samples import hidden, mask, pack

pytestmark = [host, requires("torch-mlir", "iree-base-compiler", "iree-base-runtime")]

Build = Callable[[], nn.Module]


class NestedTuples(nn.Module):
    """The caches of OPT's layers: a tuple of tuples behind the hidden states."""

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        """`x` `(B, T, C)`, and for two layers keys and values."""
        first, second = x * 2, x.cumsum(1)
        return first + second, ((first, second), (first - 1, second + 1))


class SplitsByLength(nn.Module):
    """As many tensors as the input is long."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """One tensor a position."""
        return x.mul(2).unbind(1)


@routes.both
@catches(Twin(SplitsByLength, {"script": "crash", "export": "raises"}), build=NestedTuples)
def test_nested_tuples(build: Build, route: str, journey: Journey) -> None:
    """A tuple of tuples lowers once it is taken apart; how many tensors a program answers with must not depend on the input.

    The article on tracing OPT ended at this: tuples of tuples stop maximize-value-semantics, as they do with HF OPT 4.26 today; an importer
    that takes them apart cures it. Of variable length they are refused at capture, or the program ends at a check of its own. 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class DictOfTensors(nn.Module):
    """A dict of tensors."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Two tensors by name."""
        return {"hidden": x + 1, "pooled": x.mean(1)}


@dataclass
class Answer:
    """What no pytree knows."""

    hidden: Tensor


class DataclassOfTensors(nn.Module):
    """A dataclass, as ModelOutput is one."""

    def forward(self, x: Tensor) -> Answer:
        """One tensor by name."""
        return Answer(x + 1)


@routes.both
@catches(Twin(DataclassOfTensors, "raises"), build=DictOfTensors)
def test_dict_of_tensors(build: Build, route: str, journey: Journey) -> None:
    """A dict of tensors is taken apart and lowers; a dataclass is refused at capture.

    llvm/torch-mlir#952; pytorch/pytorch#27743. 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class CachesGrow(nn.Module):
    """A cache that grows by what comes, as decoding does."""

    def forward(self, x: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """`x` and the cache behind it, twice as long."""
        past = x * seen.unsqueeze(-1)
        grown = torch.cat([past, x], 1)
        return torch.softmax(x @ grown.transpose(1, 2), -1) @ grown, grown


class CachesInModule(nn.Module):
    """The cache is an attribute of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = torch.zeros(0)

    def forward(self, x: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """As above; what the cache held at capture is in the program."""
        if self.cache.shape != x.shape:
            self.cache = (x * seen.unsqueeze(-1)).detach().clone()
        return x + self.cache.mean(), self.cache


@routes.script
@catches(Twin(CachesInModule, "wrong"), build=CachesGrow)
def test_cache_goes_through(build: Build, route: str, journey: Journey) -> None:
    """A cache that goes in and comes out lowers; one that is kept in the module is a constant of the program.

    huggingface/transformers#35291; llvm/torch-mlir#952. 1.13 to 2.15.
    """
    journey.take(pack(build(), hidden, mask), route, "reference")
