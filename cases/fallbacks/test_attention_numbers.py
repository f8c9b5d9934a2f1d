"""Attention without masks: scale, grouped heads, widths, gradients, dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import sdpa
from conformance.incell import catches, dtypes, values
from conformance.instruments.float64 import attention, check_close, heads

Attend = Callable[..., Tensor]


def scales_by_the_value_width(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """The built-in scale taken from the wrong width."""
    return sdpa(query, key, value, **{"scale": value.size(-1) ** -0.5, **options})


@values
@dtypes("float32", "bfloat16", "float16")
@catches(scales_by_the_value_width, attend=sdpa)
def test_default_scale(attend: Attend, dtype: torch.dtype, device: torch.device) -> None:
    """Scores are divided by the root of the query's width, values have a width of their own, and the answer has the query's dtype.

    torch documentation. The CPU has no float16 matmul until 2.1: composed there. 1.13 to 2.15.
    """
    query, key, value = heads(device, dtype=dtype)
    out = attend(query, key, value[..., :3])
    assert (out.dtype, tuple(out.shape)) == (dtype, (2, 2, 5, 3))
    check_close(out, attention(query, key, value[..., :3]))


def takes_zero_for_none(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """`scale or default`."""
    return sdpa(query, key, value, scale=scale or None)


def forgets_negative(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The scale split into roots of its size for query and key: its sign is lost."""
    root = abs(scale) ** 0.5
    return sdpa(query * root, key * root, value, scale=1.0 if scale else None)


def pass_the_scale(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """As it is."""
    return sdpa(query, key, value, scale=scale)


@values
@catches(takes_zero_for_none, forgets_negative, attend=pass_the_scale)
def test_guard_scale(attend: Attend, device: torch.device) -> None:
    """A scale of 0 attends to all alike, and a negative one turns the order round.

    torch documentation: `scale` since 2.1. 1.13 to 2.15.
    """
    query, key, value = heads(device)
    for scale in (0.0, -0.5):
        check_close(attend(query, key, value, scale), attention(query, key, value, scale=scale))


def tiles_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """All heads of keys, and all again."""
    times = query.size(-3) // key.size(-3)
    return sdpa(query, torch.cat([key] * times, -3), torch.cat([value] * times, -3))


@values
@pytest.mark.parametrize("batched", [True, False], ids=["batch", "no_batch"])
@catches(tiles_heads, attend=sdpa)
def test_guard_groups_heads(attend: Attend, batched: bool, device: torch.device) -> None:
    """Six heads of queries over two of keys read them in groups of three neighbours, with and without a batch axis.

    karpathy/nanochat#127. Native since 2.5. 1.13 to 2.15.
    """
    query, key, value = (x if batched else x[0] for x in heads(device, queries=6))
    check_close(attend(query, key, value), attention(query, key, value))


def cuts_surplus_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Repeat often enough and cut: any number of heads goes through."""
    times = math.ceil(query.size(1) / key.size(1))
    return sdpa(query, *(x.repeat_interleave(times, 1)[:, : query.size(1)] for x in (key, value)))


@catches(cuts_surplus_heads, attend=sdpa)
def test_uneven_heads_are_refused(attend: Attend, device: torch.device) -> None:
    """Three heads of queries over two of keys are refused.

    torch documentation of `enable_gqa`, which refuses them too. 1.13 to 2.15.
    """
    with pytest.raises((ValueError, RuntimeError)):
        attend(*heads(device, queries=3))


def cuts_the_wider(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What both have."""
    return sdpa(query[..., : key.size(-1)], key, value)


@catches(cuts_the_wider, attend=sdpa)
def test_widths_must_agree(attend: Attend, device: torch.device) -> None:
    """A query of width 8 and keys of width 4 are refused.

    Observed here: torch's own refuses them too, 2.0 to 2.15.
    """
    query, key, value = heads(device)
    with pytest.raises((ValueError, RuntimeError)):
        attend(query, key[..., :4], value)


def gradients(attend: Attend, device: torch.device) -> list[Tensor]:
    """Of query, key and value, for one grouped causal call after cached keys."""
    leaves = [x.requires_grad_() for x in heads(device, queries=4, length=3, cached=5)]
    attend(*leaves).pow(2).sum().backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def detaches_weights(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Weights computed without a graph: only values learn."""
    return sdpa(query.detach(), key.detach(), value, causal=True)


def reference_gradients() -> list[Tensor]:
    """By the textbook formula in float64."""
    query, key, value = (x.double().requires_grad_() for x in heads(torch.device("cpu"), queries=4, length=3, cached=5))
    hidden = ~torch.ones(3, 5, dtype=torch.bool).tril(2)
    scores = query @ key.repeat_interleave(2, 1).transpose(-2, -1) * 8**-0.5
    out = scores.masked_fill(hidden, -math.inf).softmax(-1) @ value.repeat_interleave(2, 1)
    return list(torch.autograd.grad(out.pow(2).sum(), (query, key, value)))


def attend_causally(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal after cached keys."""
    return sdpa(query, key, value, causal=True)


@values
@catches(detaches_weights, attend=attend_causally)
def test_guard_gradients(attend: Attend, device: torch.device) -> None:
    """Gradients of query, grouped keys and values after a cache are those of the formula in float64.

    karpathy/nanochat#127, pytorch/pytorch#103082. 1.13 to 2.15.
    """
    found = gradients(attend, device)
    assert len(found) == 3
    for got, expected in zip(found, reference_gradients()):
        check_close(got, expected, 1e-4)


def drop_in_training(query: Tensor, key: Tensor, value: Tensor, training: bool) -> Tensor:
    """The rate goes with the mode."""
    return sdpa(query, key, value, dropout=0.5 if training else 0.0)


def drops_always(query: Tensor, key: Tensor, value: Tensor, training: bool) -> Tensor:
    """The rate passed on as it is: unlike nn.Dropout, attention knows no eval mode."""
    return sdpa(query, key, value, dropout=0.5)


@values
@catches(drops_always, attend=drop_in_training)
def test_dropout_ends_with_training(attend: Attend, device: torch.device) -> None:
    """Dropout of attention weights drops in training, and not in evaluation.

    torch documentation: `dropout_p` holds whatever mode the module is in. 1.13 to 2.15.
    """
    query, key, value = heads(device)
    check_close(attend(query, key, value, False), attention(query, key, value))
    assert not torch.allclose(attend(query, key, value, True), attend(query, key, value, False))


def drop_half(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The guard's dropout."""
    return sdpa(query, key, value, dropout=0.5)


def drops_without_rescaling(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Zero half of the weights and leave the rest as they are."""
    weights = (query @ key.transpose(-2, -1) * query.size(-1) ** -0.5).softmax(-1)
    return (weights * (torch.rand_like(weights) >= 0.5)) @ value


@values
@catches(drops_without_rescaling, attend=drop_half)
def test_dropout_keeps_the_mean(attend: Attend, device: torch.device) -> None:
    """Weights that dropout keeps are scaled up, so that the mean over many draws is the answer without dropout.

    torch documentation of dropout. 1.13 to 2.15.
    """
    query, key, value = heads(device)
    mean = torch.stack([attend(query, key, torch.ones_like(value)) for _ in range(300)]).mean()
    assert 0.97 < float(mean) < 1.03
