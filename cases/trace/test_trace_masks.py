"""Masks under torch.jit.trace: causal ones, padding ones, their fills, and the guards that build them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import causal_mask, padding_mask
from conformance.incell import catches, uncounted, values
from conformance.instruments.capture import nodes
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]
HIDDEN = -math.inf


def _rows(device: torch.device, *shapes: tuple[int, ...]) -> dict[str, tuple[Tensor, ...]]:
    return {"x".join(map(str, shape)): (uniform(shape).to(device),) for shape in shapes}


def mask_by_traced_size(x: Tensor) -> Tensor:
    """Sizes go into the factories as `.size()` gives them."""
    length = x.size(1)
    mask = torch.full((length, length), HIDDEN, device=x.device)
    at = torch.arange(mask.size(-1), device=x.device)
    return mask.masked_fill(at < (at + 1).view(-1, 1), 0)


def casts_size_to_int(x: Tensor) -> Tensor:
    """The length of the example becomes a Python number on the way to arange."""
    length = x.size(1)
    mask = torch.full((length, length), HIDDEN, device=x.device)
    at = torch.arange(int(mask.size(-1)), device=x.device)
    return mask.masked_fill(at < (at + 1).view(-1, 1), 0)


@catches(casts_size_to_int, build=mask_by_traced_size)
def test_causal_mask_follows_length(build: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """A causal mask traced at length 7 is right at any length when its sizes are not cast to int.

    The article on tracing OPT, whose own cure was the cast; pytorch/pytorch#12579. The cast is loud at most lengths and
    silent at length 1, where it broadcasts. 1.13 to 2.15.
    """
    traced = check_trace(build, _rows(device, (1, 7), (1, 5), (1, 9), (1, 1)), observe, stage)
    assert traced.warned == ()


def fill_with_number(x: Tensor) -> Tensor:
    """The fill is a Python float."""
    return torch.full((x.size(1), x.size(1)), HIDDEN, device=x.device)


def fills_with_tensor(x: Tensor) -> Tensor:
    """The fill is a tensor, which becomes a constant and then a number."""
    return torch.full((x.size(1), x.size(1)), torch.tensor(HIDDEN), device=x.device)  # type: ignore[arg-type]


@catches(fills_with_tensor, build=fill_with_number)
def test_fill_is_a_number(build: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """The fill of a traced `full` is a float constant, not a tensor turned into a number (a synchronisation on a GPU).

    The article on tracing OPT; huggingface/transformers#24696. Both give equal numbers: only the graph tells. 1.13 to 2.15.
    """
    traced = check_trace(build, _rows(device, (1, 7), (1, 5), (1, 9)), observe, stage)
    fill = list(nodes(traced, "aten::full")[0].inputs())[1]
    observe("fill", f"{fill.node().kind()}:{fill.type()}")
    assert traced.warned == ()
    assert (fill.node().kind(), str(fill.type())) == ("prim::Constant", "float")


def mask_from_guard(lengths: Tensor) -> Tensor:
    """The guard, given the longest length as a tensor."""
    return padding_mask(lengths, lengths.max())


def casts_longest_to_int(lengths: Tensor) -> Tensor:
    """The longest length of the example."""
    return torch.arange(int(lengths.max()), device=lengths.device)[None, :] < lengths[:, None]


@catches(casts_longest_to_int, build=mask_from_guard)
def test_padding_mask_follows_lengths(build: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """A padding mask is as wide as the longest sequence at hand.

    SeanNaren/deepspeech.pytorch#599, ray-project/ray#30684: silent. 1.13 to 2.15.
    """
    inputs = {name: (torch.tensor([int(n) for n in name.split("_")], device=device),) for name in ("3_1", "2_2_5")}
    assert check_trace(build, inputs, observe, stage).warned == ()


def freezes_mask_of_example(x: Tensor, past: int = 0) -> Tensor:
    """The same mask, its length a Python number."""
    length = int(x.size(1))
    seen = torch.ones(length, past + length, device=x.device).tril(past).bool()
    return torch.zeros(length, past + length, device=x.device).masked_fill(~seen, torch.finfo(x.dtype).min)[None, None]


@pytest.mark.parametrize("past", [0, 4], ids=["past0", "past4"])
@catches(freezes_mask_of_example, build=causal_mask)
def test_guard_causal_mask_follows(build: Code, past: int, device: torch.device, observe: Observe, stage: Any) -> None:
    """The guard `causal_mask`, traced once, is right for other batches and lengths, with and without a past.

    The article on tracing OPT; llvm/torch-mlir#952. 1.13 to 2.15.
    """
    shapes = ((2, 7, 8), (2, 5, 8), (1, 9, 8), (3, 1, 8))
    assert check_trace(lambda x: build(x, past), _rows(device, *shapes), observe, stage).warned == ()
    torch.testing.assert_close(build(uniform((2, 7, 8)), past), freezes_mask_of_example(uniform((2, 7, 8)), past))
