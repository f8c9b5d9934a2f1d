"""Activation checkpointing: gradients that vanish, masks that change, recomputation that sees other weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conformance.guards import autocast
from conformance.incell import Twin, catches, values
from conformance.instruments.weights import uniform

Recompute = Callable[..., Any]


def without_reentry(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Always said by hand: the default is the other one."""
    return checkpoint(function, *arguments, use_reentrant=False, **named)


def with_reentry(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The older way."""
    return checkpoint(function, *arguments, use_reentrant=True, **named)


class Block(nn.Module):
    """A layer that is recomputed, in front of one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, recompute: Recompute, x: Tensor, packed: bool = False) -> Tensor:
        """`packed` hands the input over inside of a dict."""
        hidden = recompute(lambda held: self.inner(held["x"]), {"x": x}) if packed else recompute(self.inner, x)
        return self.outer(hidden).sum()


@values
@pytest.mark.parametrize("how", ["frozen_input", "in_a_dict"])
@catches(with_reentry, recompute=without_reentry)
def test_recomputed_layer_learns(recompute: Recompute, how: str, device: torch.device) -> None:
    """A recomputed layer gets gradients though its input needs none, or comes inside of a dict.

    mlfoundations/open_clip#573, pytorch/pytorch#7617, pytorch/pytorch#124725: with reentry a warning, and no gradient. 1.13 to 2.15.
    """
    block = Block().to(device)
    x = torch.ones(2, 3, device=device, requires_grad=how == "in_a_dict")
    block(recompute, x, packed=how == "in_a_dict").backward()
    assert block.outer.weight.grad is not None
    assert block.inner.weight.grad is not None


def forgets_the_stream(function: Callable[..., Any], *arguments: Any) -> Any:
    """Faster: the recomputation draws anew."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


@values
@catches(forgets_the_stream, recompute=without_reentry)
def test_dropout_is_drawn_once(recompute: Recompute, device: torch.device) -> None:
    """Dropout in a recomputed part drops the same elements when it is recomputed: gradients fit the output.

    torch documentation of `preserve_rng_state`. 1.13 to 2.15.
    """
    x = torch.ones(64, device=device, requires_grad=True)
    out = recompute(lambda x: functional.dropout(x * x, 0.5), x)
    torch.rand(7, device=device)  # another part draws in between
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, out.detach() == 0)


def recomputes_by_current_weights(function: Callable[..., Any], *arguments: Any) -> Any:
    """A layer that keeps nothing: what the backward needs is made anew by weights that moved."""
    return without_reentry(function, *arguments)


def keep_what_was(function: Callable[..., Any], *arguments: Any) -> Any:
    """No recomputation: torch notices that a saved weight was written to."""
    return function(*arguments)


@values
@catches(recomputes_by_current_weights, run=keep_what_was)
def test_weights_written_before_backward(run: Recompute, device: torch.device) -> None:
    """A weight written between forward and backward is refused by the backward, unless the part is recomputed.

    Observed here: recomputation uses the new weights in silence, 1.13 to 2.15. So no optimizer may step in between.
    """
    layer, x = nn.Linear(3, 3).to(device), torch.ones(1, 3, device=device, requires_grad=True)
    out = run(layer, x)
    with torch.no_grad():
        layer.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@values
@catches(Twin(with_reentry, "raises"), recompute=without_reentry)
def test_gradient_of_a_recomputed_weight(recompute: Recompute, device: torch.device) -> None:
    """`autograd.grad` of a recomputed weight is that of the plain layer, keyword arguments included.

    pytorch/pytorch#65537 (why there is another way): with reentry both raise. 1.13 to 2.15.
    """
    layer, x = nn.Linear(3, 3).to(device), uniform((2, 3), "x").to(device).requires_grad_()

    def scaled(x: Tensor, *, by: float) -> Tensor:
        return layer(x) * by

    (got,) = torch.autograd.grad(recompute(scaled, x, by=2.0).sum(), layer.weight)
    (expected,) = torch.autograd.grad(scaled(x, by=2.0).sum(), layer.weight)
    torch.testing.assert_close(got, expected)


def recompute_in_its_block(function: Callable[..., Any], x: Tensor) -> Any:
    """The recomputation goes back under the autocast of the forward."""
    return without_reentry(function, x)


def recomputes_by_hand(function: Callable[..., Any], x: Tensor) -> Any:
    """A hand-written one: by the time of the backward the block of autocast has ended."""

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            with torch.no_grad():
                return function(x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            held = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                out = function(held)
            return torch.autograd.grad(out, held, gradient.to(out.dtype))

    return Again.apply(x)


@values
@catches(recomputes_by_hand, recompute=recompute_in_its_block)
def test_recomputed_under_the_same_autocast(recompute: Recompute, device: torch.device, observe: Callable[..., None]) -> None:
    """A part that ran in bfloat16 is recomputed in bfloat16, though the backward runs outside of autocast.

    torch documentation of checkpoint. 1.13 to 2.15; since 2.1 it ends early, where all is there that the backward needs.
    """
    layer, ran = nn.Linear(3, 3).to(device), []

    def part(x: Tensor) -> Tensor:
        out = layer(x)
        ran.append(out.dtype)
        return out.float().relu()

    x = torch.ones(1, 3, device=device, requires_grad=True)
    with autocast(device, torch.bfloat16):
        out = recompute(part, x)
    out.sum().backward()
    observe("runs", len(ran), better="lower")
    assert set(ran) == {torch.bfloat16}


@values
def test_default_way_native(observe: Callable[..., None], device: torch.device) -> None:
    """`checkpoint` without `use_reentrant` keeps the gradients of a layer whose input needs none.

    pytorch/pytorch#65537: the default has yet to change; the older way holds from 1.13 to 2.15, with a warning since 2.1.
    """
    observe("default", str(inspect.signature(checkpoint).parameters["use_reentrant"].default))
    block = Block().to(device)
    block(checkpoint, torch.ones(2, 3, device=device)).backward()
    assert block.inner.weight.grad is not None
