"""Sizes on the way to MLIR: what the article on OPT met first, since `.size()` gives tensors while the tracer runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from conformance.incell import catches, host, requires
from conformance.incell.marks import Twin
from conformance.instruments.lowering import routes
from conformance.instruments.lowering.journey import Journey
from conformance.instruments.lowering.samples import WIDTH, hidden, mask, pack

pytestmark = [host, requires("torch-mlir", "iree-base-compiler", "iree-base-runtime")]

Build = Callable[[], nn.Module]
#: A number taken out of the data or a size is a constant of a trace, in silence; torch.export refuses it.
SILENT = {"script": "wrong", "export": "raises"}


class ArangeOfSize(nn.Module):
    """`torch.arange(mask.size(-1))`: the size goes in as it comes."""

    def forward(self, x: Tensor) -> Tensor:
        """Positions `(B, T)` beside `x` `(B, T, C)`."""
        return x + torch.arange(x.size(1)).unsqueeze(-1)


class ArangeOfInt(nn.Module):
    """The size becomes a Python number, and a constant."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, for one length."""
        return x[:, :1] + torch.arange(int(x.size(1))).sum()


@routes.both
@catches(Twin(ArangeOfInt, SILENT), build=ArangeOfSize)
def test_arange_of_a_size(build: Build, route: str, journey: Journey) -> None:
    """`torch.arange(x.size(1))` lowers with the length left open.

    The article on tracing OPT: torch-mlir had no lowering of arange on a size that is a tensor. Now: lowers, 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class SizesAsTheyCome(nn.Module):
    """Sizes go into `view` untouched."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, 2, C / 2)` and back, heads swapped."""
        batch, length, width = x.size()
        return x.view(batch, length, 2, width // 2).flip(2).reshape(batch, length, width)


class SizesMappedToInt(nn.Module):
    """The article's own cure: `map(int, x.size())`. The sizes of the example are in the program now."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, and right for one shape."""
        batch, length, width = map(int, x.size())
        return x.reshape(-1)[: batch * length * width].sum() / (batch * length) + x


@routes.both
@catches(Twin(SizesMappedToInt, SILENT), build=SizesAsTheyCome)
def test_sizes_as_they_come(build: Build, route: str, journey: Journey) -> None:
    """Sizes that go into `view` as they come follow the input all the way down.

    The article on tracing OPT cast them by `map(int, x.size())`, which lowered, and froze them. Now both lower, and the cast is as wrong.
    1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class ViewAfterTranspose(nn.Module):
    """OPT's heads: `view`, `transpose`, `contiguous`, and `view` again by sizes that are tensors while tracing."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`, by way of `(B, H, T, D)`."""
        batch, length, width = x.shape
        heads = x.view(batch, length, 2, width // 2).transpose(1, 2).contiguous()
        mixed = torch.softmax(heads @ heads.transpose(2, 3), -1) @ heads
        return mixed.transpose(1, 2).contiguous().view(batch, length, width)


class ViewsByLen(ViewAfterTranspose):
    """`len` gives a Python number."""

    def forward(self, x: Tensor) -> Tensor:
        """Batch by `len`, which the tracer freezes."""
        return super().forward(x) / len(x)


@routes.both
@catches(Twin(ViewsByLen, SILENT), build=ViewAfterTranspose)
def test_view_after_transpose(build: Build, route: str, journey: Journey) -> None:
    """Heads are split, mixed and merged by sizes that are tensors while tracing.

    The article on tracing OPT: `view` after `transpose` failed on such sizes in torch-mlir. Now: lowers, 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class ScaledByConfig(nn.Module):
    """The scale comes from the configuration."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` over the root of its width."""
        return x * (WIDTH // 2) ** -0.5


class ScaledBySize(nn.Module):
    """The scale comes from a size, which is a tensor while tracing: an integer to a power that is none."""

    def forward(self, x: Tensor) -> Tensor:
        """As above."""
        return x * (x.size(-1) // 2) ** -0.5


@routes.script
@catches(Twin(ScaledBySize, "raises"), build=ScaledByConfig)
def test_scale_of_a_width(build: Build, route: str, journey: Journey) -> None:
    """A scale from the configuration lowers; one from a size becomes `aten.pow` of an integer tensor, which does not.

    The article's question why `.size()` gives tensors, alive: 'arith.fptosi' with torch-mlir 20261001, torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class RepeatsByExpand(nn.Module):
    """Grouped heads by `expand` and `flatten`."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, 2 T, C)`."""
        return x.unsqueeze(2).expand(-1, -1, 2, -1).flatten(1, 2)


class RepeatsByLoop(nn.Module):
    """A Python loop over the length runs as often as the example is long."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, for one length."""
        return torch.cat([x[:, at : at + 1].expand(-1, 2, -1) for at in range(x.size(1))], 1)


@routes.both
@catches(Twin(RepeatsByLoop, "raises"), build=RepeatsByExpand)
def test_repeat_follows_length(build: Build, route: str, journey: Journey) -> None:
    """What is done for each position is one op on all, not a loop that is unrolled for the example's length.

    pytorch/pytorch#138973: the tracer records what ran. Lowers with torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class HeldToItsShape(nn.Module):
    """OPT's checks of shapes: they raise in Python, and are not in the program."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """`x` where `seen` `(B, T)`."""
        if seen.size() != (x.size(0), x.size(1)):
            raise ValueError(f"mask of size {seen.size()}")
        return x * seen.unsqueeze(-1)


class BranchesOnShape(nn.Module):
    """OPT's `if input_shape[-1] > 1`, whose warning the article left alone."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Another formula for one token."""
        if x.shape[1] > 1:
            return x * seen.unsqueeze(-1)
        return x * 2


@routes.both
@catches(BranchesOnShape, build=HeldToItsShape)
def test_check_of_a_shape(build: Build, route: str, journey: Journey) -> None:
    """A check of shapes that raises leaves the program whole; a branch on a shape leaves it with one side.

    The article on tracing OPT ignored the warning at `if input_shape[-1] > 1`: OPT of transformers 4.26 traced at one token is wrong at
    seven. 1.13 to 2.15.
    """
    journey.take(pack(build(), hidden, mask), route, "reference")
