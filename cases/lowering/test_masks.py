"""Masks on the way to MLIR: `full`, `masked_fill_`, `.to`, `_expand_mask`, and what the article on OPT met at each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from conformance.incell import catches, host, requires
from conformance.incell.marks import Twin
from conformance.instruments.lowering import routes
from conformance.instruments.lowering.journey import Journey
from conformance.instruments.lowering.samples import hidden, ids, mask, pack

pytestmark = [host, requires("torch-mlir", "iree-base-compiler", "iree-base-runtime")]

Build = Callable[[], nn.Module]
#: A number taken out of the data or a size is a constant of a trace, in silence; torch.export refuses it.
SILENT = {"script": "wrong", "export": "raises"}


class FullOfTensor(nn.Module):
    """The article's line: `torch.full((length, length), torch.tensor(torch.finfo(dtype).min))`."""

    def forward(self, x: Tensor) -> Tensor:
        """Causal scores of `x` `(B, T, C)`."""
        blank = torch.full((x.size(1), x.size(1)), torch.tensor(torch.finfo(x.dtype).min))
        return torch.softmax(x @ x.transpose(1, 2) + blank.triu(1), -1) @ x


class FullOfNumber(nn.Module):
    """The fill is a number of the data."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, masked by what the example's smallest number was."""
        blank = torch.full((x.size(1), x.size(1)), float(x.min()))
        return x @ x.transpose(1, 2) + blank


@routes.both
@catches(Twin(FullOfNumber, SILENT), build=FullOfTensor)
def test_full_of_a_tensor(build: Build, route: str, journey: Journey) -> None:
    """`torch.full` with a tensor for its fill lowers.

    The article on tracing OPT: torch-mlir could not convert the fill, a tensor where a number is expected. Now: lowers, 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class FillsInPlace(nn.Module):
    """`masked_fill_` on a tensor made inside, as OPT's causal mask does."""

    def forward(self, x: Tensor) -> Tensor:
        """Causal scores of `x` `(B, T, C)`."""
        blank = torch.full((x.size(1), x.size(1)), -1e9)
        at = torch.arange(x.size(1))
        blank.masked_fill_(at < (at + 1).unsqueeze(-1), 0)
        return torch.softmax(x @ x.transpose(1, 2) + blank, -1) @ x


class FillsArgument(nn.Module):
    """`masked_fill_` on the caller's tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """Negative numbers are gone from `x` afterwards; a lowered program cannot write there."""
        return x.masked_fill_(x < 0, 0.0) * 2


@routes.both
@catches(Twin(FillsArgument, SILENT), build=FillsInPlace)
def test_fill_in_place(build: Build, route: str, journey: Journey) -> None:
    """`masked_fill_` on a tensor of the program's own lowers; on an argument it is lost, or refused.

    The article on tracing OPT: in-place ops were not made functional. Now: lowers, 1.13 to 2.15; a mutated argument that was exported stops
    at `torch.copy.to_vtensor` in torch-mlir 20261001.
    """
    journey.take(pack(build()), route, "reference")


class CastsMask(nn.Module):
    """`.to(dtype)`, twice, as OPT's masks are cast."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """`x` where the mask `(B, T)` is not 0."""
        kept = (1.0 - seen.to(x.dtype)).to(torch.float32)
        return x.masked_fill(kept.to(torch.bool).unsqueeze(-1), 0.0)


class CastsThroughNumpy(nn.Module):
    """The cast leaves torch."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """As above, for the example's mask."""
        return x * torch.from_numpy(seen.numpy()).unsqueeze(-1)


@routes.both
@catches(Twin(CastsThroughNumpy, {"script": "crash", "export": "raises"}), build=CastsMask)
def test_cast_of_a_mask(build: Build, route: str, journey: Journey) -> None:
    """`.to(dtype)` to the dtype that a tensor has, and to bool, lowers.

    The article on tracing OPT: `aten.to.dtype` had to be replaced by hand. Now: lowers, 1.13 to 2.15.
    """
    journey.take(pack(build(), hidden, mask), route, "reference")


class CastsBuffer(nn.Module):
    """A table that is a buffer, in the input's dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.tensor([1, 2, 3, 4]))

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, 4)` times the table."""
        return x * self.table.to(x.dtype)


class CastsConstant(CastsBuffer):
    """The table is made anew, so that it is a constant of the program."""

    def __init__(self) -> None:
        super().__init__()
        del self.table
        self.table = torch.tensor([1, 2, 3, 4])


@routes.script
@catches(Twin(CastsConstant, "crash"), build=CastsBuffer)
def test_cast_of_a_table(build: Build, route: str, journey: Journey) -> None:
    """The cast of a buffer to the input's dtype lowers; that of a constant kills the compiler.

    llvm/torch-mlir#4306 folds a cast of a constant, also where the type of its answer is not known yet: torch-mlir-opt dies of SIGSEGV in
    AtenToDtypeOp::fold. Seen here with torch-mlir 20261001, torch 2.13.
    """
    journey.take(pack(build()), route, "reference")


class MovesMask(nn.Module):
    """`.to(x.device)`."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """`x` times the mask `(B, T)`."""
        return x * seen.to(x.device).unsqueeze(-1).to(x.dtype)


class MovesThroughList(nn.Module):
    """The mask is made anew from a list."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """As above, for the example's mask."""
        return x * torch.tensor(seen.tolist(), dtype=x.dtype, device=x.device).unsqueeze(-1)


@routes.both
@catches(Twin(MovesThroughList, {"script": "crash", "export": "raises"}), build=MovesMask)
def test_move_of_a_mask(build: Build, route: str, journey: Journey) -> None:
    """`.to(device)` to where a tensor is lowers to nothing.

    The article on tracing OPT: `aten.to.device` was not known. Now: lowers, 1.13 to 2.15.
    """
    journey.take(pack(build(), hidden, mask), route, "reference")


def expand_mask(seen: Tensor, dtype: torch.dtype, length: int) -> Tensor:
    """OPT's `_expand_mask`: `(B, S)` to `(B, 1, T, S)`, 0 where a token is and the least number elsewhere."""
    batch, source = seen.size()
    inverted = 1.0 - seen[:, None, None, :].expand(batch, 1, length, source).to(dtype)
    return inverted.masked_fill(inverted.to(torch.bool), torch.finfo(dtype).min)


class ExpandsMask(nn.Module):
    """`_expand_mask` as it comes."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Attention of `x` on itself where the mask lets it."""
        scores = (x @ x.transpose(1, 2)).unsqueeze(1) + expand_mask(seen, x.dtype, x.size(1))
        return torch.softmax(scores, -1).squeeze(1) @ x


class ExpandsMaskToInt(nn.Module):
    """The lengths are cast to int first."""

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """As above, for the example's length."""
        blank = expand_mask(seen, x.dtype, int(x.size(1)))
        return torch.softmax(blank[:, :, -1:].sum(2) + (x @ x.transpose(1, 2)).mean(), -1) @ x + int(x.size(1))


@routes.both
@catches(Twin(ExpandsMaskToInt, SILENT), build=ExpandsMask)
def test_expanded_mask(build: Build, route: str, journey: Journey) -> None:
    """OPT's `_expand_mask` lowers, and follows batch and length.

    The article on tracing OPT rewrote it, since `expand` took no sizes that are tensors. Now: lowers, 1.13 to 2.15.
    """
    journey.take(pack(build(), hidden, mask), route, "reference")


class PositionsByCumsum(nn.Module):
    """OPT's positions: a running sum of the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 4)

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """Positions of `tokens` `(B, T)`, embedded, 2 beyond."""
        at = (torch.cumsum(seen, dim=1).type_as(seen) * seen).long() - 1
        return self.table(at + 2) * (tokens.unsqueeze(-1) + 1)


class PositionsFromLongest(PositionsByCumsum):
    """The longest sequence is a number of the data."""

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """As above, beyond what the example's longest was."""
        return super().forward(tokens, seen) + int(seen.sum(1).min())


@routes.both
@catches(Twin(PositionsFromLongest, SILENT), build=PositionsByCumsum)
def test_positions_of_a_mask(build: Build, route: str, journey: Journey) -> None:
    """OPT's positions, a running sum of the mask that indexes an embedding, lower.

    The article on tracing OPT; llvm/torch-mlir had no cumsum then. Now: lowers to tm_tensor.scan, 1.13 to 2.15.
    """
    journey.take(pack(build(), ids, mask), route, "reference")


class FloorsByTensor(nn.Module):
    """OPT's `torch.max(scores, torch.tensor(torch.finfo(dtype).min))`."""

    def forward(self, x: Tensor) -> Tensor:
        """Scores of `x` that do not fall below the least number."""
        scores = x @ x.transpose(1, 2) * 3
        return torch.softmax(torch.max(scores, torch.tensor(torch.finfo(scores.dtype).min)), -1) @ x


class FloorsByInt(nn.Module):
    """The floor is a number of the data."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, with the example's floor."""
        scores = x @ x.transpose(1, 2) * 3
        return torch.max(scores, torch.tensor(float(int(scores.amax()))))


@routes.both
@catches(Twin(FloorsByInt, SILENT), build=FloorsByTensor)
def test_floor_of_scores(build: Build, route: str, journey: Journey) -> None:
    """A constant tensor beside `torch.max` lowers as what it is.

    The article on tracing OPT: the warning that `torch.tensor` registers a constant. Right here, since it is one. 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")
