"""Branches, loops and numbers of the data on the way to MLIR."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from conformance.incell import catches, host, limits, requires
from conformance.incell.marks import Twin
from conformance.instruments import children
from conformance.instruments.lowering import routes
from conformance.instruments.lowering.journey import Journey
from conformance.instruments.lowering.samples import pack

pytestmark = [host, requires("torch-mlir", "iree-base-compiler", "iree-base-runtime")]

Build = Callable[[], nn.Module]
#: A number taken out of the data or a size is a constant of a trace, in silence; torch.export refuses it.
SILENT = {"script": "wrong", "export": "raises"}
#: Programs as small as these take 0.1 s; a pass that never ends takes 250 MB a second, and is not to be waited for.
SOON = children.Limit(seconds=4.0, megabytes=4_000)


class ChoosesByWhere(nn.Module):
    """Both sides are computed, and one is taken."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` doubled where its sum is above 0, else less 1."""
        return torch.where(x.sum() > 0, x * 2, x - 1)


class BranchesOnData(nn.Module):
    """A Python branch on a number of the data."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, for the side that the example took."""
        return x * 2 if x.sum() > 0 else x - 1


@routes.both
@catches(Twin(BranchesOnData, SILENT), build=ChoosesByWhere)
def test_choice_by_data(build: Build, route: str, journey: Journey) -> None:
    """A choice by data that is written with `where` lowers; a Python branch is frozen by the tracer, and lowers as well, to one side.

    pytorch/pytorch#163791; the article on tracing OPT ignored its TracerWarnings. 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class ScalesByTensor(nn.Module):
    """A value of the data stays a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` over its largest."""
        return x / x.abs().amax()


class ScalesByItem(nn.Module):
    """The value becomes a number."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, over the example's largest."""
        return x * int((x.abs().sum() * 10).item())


@routes.both
@catches(Twin(ScalesByItem, SILENT), build=ScalesByTensor)
def test_scale_by_data(build: Build, route: str, journey: Journey) -> None:
    """A value of the data that stays a tensor follows the data all the way down.

    pytorch/pytorch#22485: `.item()` freezes it, in silence, and what lowers is as wrong as the trace. 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class SumsWhere(nn.Module):
    """Numbers that are not wanted count as 0."""

    def forward(self, x: Tensor) -> Tensor:
        """The sum of what is above 0."""
        return torch.where(x > 0, x, torch.zeros_like(x)).sum()


class SumsByIndex(nn.Module):
    """Numbers that are wanted are picked: how many is known when it runs."""

    def forward(self, x: Tensor) -> Tensor:
        """As above."""
        return x[x > 0].sum()


@limits(timeout_s=300)
@routes.both
@catches(Twin(SumsByIndex, {"script": "raises", "export": "timeout"}), build=SumsWhere)
def test_sum_of_a_choice(build: Build, route: str, journey: Journey) -> None:
    """A sum over a choice is written with `where`: a boolean index sends torch-mlir into a compile without end.

    llvm/torch-mlir#4123. With torch-mlir 20261001 on 1.13 to 2.15.
    """
    journey.within(SOON).take(pack(build()), route, "reference")


@routes.both
@limits(timeout_s=300)
def test_boolean_index_native(route: str, journey: Journey) -> None:
    """A boolean index lowers in the time that a small program may take.

    llvm/torch-mlir#4123: the lowering never ends, and its memory grows. torch-mlir 20261001, with torch 1.13 to 2.15.
    """
    journey.within(SOON).take(pack(SumsByIndex()), route, "reference")


class AttendsByMask(nn.Module):
    """Causality is a mask."""

    def forward(self, x: Tensor) -> Tensor:
        """Causal attention of `x` `(B, T, C)` on itself."""
        seen = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        scores = (x @ x.transpose(1, 2)).masked_fill(~seen, float("-inf"))
        return torch.softmax(scores, -1) @ x


class AttendsByFlag(nn.Module):
    """Causality is a flag that is computed from a size."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, by `is_causal=x.size(1) > 1`, which is a tensor while tracing."""
        heads = x.unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=heads.size(2) > 1).squeeze(1) * heads.size(2)


@routes.script
@catches(Twin(AttendsByFlag, "raises"), build=AttendsByMask)
def test_causal_mask(build: Build, route: str, journey: Journey) -> None:
    """Causal attention by a mask lowers; a flag computed from a size is refused by the tracer.

    The article's question why `.size()` gives tensors; karpathy/nanochat's `enable_gqa=q.size(1) != k.size(1)`. 2.0 to 2.15.
    """
    journey.take(pack(build()), route, "reference")


class MeansOfLength(nn.Module):
    """A mean divides by a size of the input."""

    def forward(self, x: Tensor) -> Tensor:
        """The mean over the length."""
        return x.sum(1) / x.size(1)


class MeansOfNumbers(nn.Module):
    """How many numbers there are is asked of Python."""

    def forward(self, x: Tensor) -> Tensor:
        """As above, by the example's count."""
        return x.sum(1) / int(x.shape[1])


@routes.both
@catches(Twin(MeansOfNumbers, SILENT), build=MeansOfLength)
def test_mean_by_size(build: Build, route: str, journey: Journey) -> None:
    """A division by a size follows it.

    pytorch/pytorch#55194. 1.13 to 2.15.
    """
    journey.take(pack(build()), route, "reference")
