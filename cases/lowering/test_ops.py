"""Ops that stop a program on the way to MLIR, each with one that goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, host, requires
from conformance.incell.marks import Twin
from conformance.instruments.lowering import routes
from conformance.instruments.lowering.journey import Journey
from conformance.instruments.lowering.samples import pack

pytestmark = [host, requires("torch-mlir", "iree-base-compiler", "iree-base-runtime")]

Build = Callable[[], nn.Module]


class MiddleBySort(nn.Module):
    """The lower median by sorting."""

    def forward(self, x: Tensor) -> Tensor:
        """The median over four channels of `x` `(B, T, 4)`."""
        return x.sort(-1)[0].select(-1, 1)


class MiddleByMedian(nn.Module):
    """`median` with a dimension."""

    def forward(self, x: Tensor) -> Tensor:
        """As above."""
        return x.median(-1)[0]


@routes.both
@catches(Twin(MiddleByMedian, "raises"), build=MiddleBySort)
def test_median(build: Build, route: str, journey: Journey) -> None:
    """A median by sorting lowers; `aten.median.dim` has no op in the torch dialect.

    torch-mlir 20261001, with torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class SpectrumByMatmul(nn.Module):
    """The discrete Fourier transform as two products with tables."""

    def forward(self, x: Tensor) -> Tensor:
        """Magnitudes over four channels of `x` `(B, T, 4)`."""
        at = torch.arange(4, dtype=x.dtype)
        angles, wide = at.unsqueeze(1) * at * (-2 * torch.pi / 4), x.unsqueeze(-1)
        return ((wide * angles.cos()).sum(-2) ** 2 + (wide * angles.sin()).sum(-2) ** 2 + 1e-6).sqrt()


class SpectrumByFft(nn.Module):
    """`torch.fft`, and the magnitude of complex numbers."""

    def forward(self, x: Tensor) -> Tensor:
        """As above."""
        return torch.fft.fft(x).abs()


@routes.both
@catches(Twin(SpectrumByFft, "raises"), build=SpectrumByMatmul)
def test_spectrum(build: Build, route: str, journey: Journey) -> None:
    """A spectrum by products lowers; the magnitude of complex numbers becomes a `math.absf` that takes none.

    torch-mlir 20261001, with torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class SquareRootByHand(nn.Module):
    """A 2 x 2 Cholesky factor in its own formulas."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, 3)`: the three numbers of the factor of a matrix that is positive."""
        a, b, c = x[..., 0] ** 2 + 2, x[..., 1], x[..., 2] ** 2 + 30
        first = a.sqrt()
        return torch.stack([first, b / first, (c - (b / first) ** 2).sqrt()], -1)


class SquareRootByCholesky(nn.Module):
    """`torch.linalg.cholesky`."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, 4, 4)`: the factor of a matrix that is positive."""
        return torch.linalg.cholesky(x.unsqueeze(-1) * x.unsqueeze(-2) + 3 * torch.eye(4))


@routes.both
@catches(Twin(SquareRootByCholesky, "raises"), build=SquareRootByHand)
def test_cholesky(build: Build, route: str, journey: Journey) -> None:
    """A small Cholesky factor in formulas lowers; `linalg.cholesky` has no op in the dialect, and exported needs a token that it has not.

    torch-mlir 20261001, with torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class LinearOnThreeAxes(nn.Module):
    """`linear` takes batch and length as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        return torch.relu(self.linear(x))


class LinearOnTwoAxes(LinearOnThreeAxes):
    """OPT's line: batch and length are flattened before `linear`, and taken apart behind it."""

    def forward(self, x: Tensor) -> Tensor:
        """As above."""
        batch, length, width = x.shape
        return torch.relu(self.linear(x.reshape(-1, width))).view(batch, length, width)


@routes.both
@catches(Twin(LinearOnTwoAxes, "raises"), build=LinearOnThreeAxes)
def test_flatten_before_linear(build: Build, route: str, journey: Journey) -> None:
    """Batch and length stay apart before `linear`: flattened, torch-mlir takes one of them for 1, and that is found without a run.

    llvm/torch-mlir#4743; Hugging Face's OPT writes it so. torch-mlir 20261001, with torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


@routes.both
@pytest.mark.parametrize("backend", ["reference", "iree"])
def test_flatten_native(route: str, backend: str, journey: Journey) -> None:
    """Batch and length that are flattened before `linear` lower to right code.

    llvm/torch-mlir#4743: through linalg they do not where both are open; through IREE, which takes the torch dialect, they do. Torch 1.13
    to 2.15.
    """
    journey.take(pack(LinearOnTwoAxes()), route, backend)


class TimesMatrix(nn.Module):
    """Three axes times a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        return x @ self.matrix


@routes.both
def test_times_matrix_native(route: str, journey: Journey) -> None:
    """Three axes times a matrix lower to right code.

    llvm/torch-mlir#4743: torch.export flattens batch and length before the product, which is that bug again. Torch 1.13 to 2.15.
    """
    journey.take(pack(TimesMatrix()), route, "reference")


class ViewsRange(nn.Module):
    """A line of OPT's causal mask: `(at + 1).view(size, 1)`, where the size is a tensor while tracing."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, C)` times its positions, from 1."""
        return x * (torch.arange(x.size(1)) + 1).view(x.size(1), 1)


@routes.both
@pytest.mark.parametrize("backend", ["reference", "iree"])
def test_view_of_a_range_native(route: str, backend: str, journey: Journey) -> None:
    """A range that is seen as a column of an open length lowers to right code.

    The article on tracing OPT (`mask_cond.view(mask.size(-1), 1)`). Seen here with torch-mlir 20261001, torch 1.13 to 2.15.
    """
    journey.take(pack(ViewsRange()), route, backend)


class Conditional(nn.Module):
    """`torch.cond`."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` doubled where its sum is above 0, else less 1."""
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))


@routes.export
@requires("torch.cond")
def test_cond_native(route: str, journey: Journey) -> None:
    """A choice by `torch.cond` lowers.

    llvm/torch-mlir: the FX importer of 20261001 raises NotImplementedError for the higher-order op. torch.cond since 2.3.
    """
    journey.take(pack(Conditional()), route, "reference")


class InverseOfSize(nn.Module):
    """A size to a power that is no integer."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` over the root of its width."""
        return x * x.size(-1) ** -0.5


@routes.script
def test_power_of_a_size_native(route: str, journey: Journey) -> None:
    """A size to the power -0.5, a tensor of integers while tracing, lowers.

    'arith.fptosi' gives no si64: seen here with torch-mlir 20261001, torch 1.13 to 2.15.
    """
    journey.take(pack(InverseOfSize()), route, "reference")


class EinsteinSum(nn.Module):
    """`einsum` over named axes."""

    def forward(self, x: Tensor) -> Tensor:
        """Scores of `x` `(B, T, C)` with itself, mixed."""
        return torch.einsum("bts,bsc->btc", torch.einsum("btc,bsc->bts", x, x), x)


class ProductOfAxes(nn.Module):
    """`tensordot` over the channels."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` times a matrix that gives each channel the sum of all."""
        return torch.tensordot(x, torch.ones(4, 4), ([2], [0]))


@routes.both
@catches(Twin(ProductOfAxes, "raises"), build=EinsteinSum)
def test_named_axes(build: Build, route: str, journey: Journey) -> None:
    """`einsum` lowers where all its operands have a batch; `tensordot` has no op in the dialect, and exported it flattens open axes.

    llvm/torch-mlir#4743. torch-mlir 20261001, with torch 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")
