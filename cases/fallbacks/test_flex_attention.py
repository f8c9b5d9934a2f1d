"""flex_attention against the formula: masks on the query's device, offsets, score functions, grouped heads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import find_attribute
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.float64 import attention, causal, check_close, heads

pytestmark = [requires("torch.nn.attention.flex_attention.flex_attention"), values, uncounted("a compiler records what runs")]

Attend = Callable[..., Tensor]


def _flex(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    found: Tensor = find_attribute("torch.nn.attention.flex_attention").flex_attention(query, key, value, **options)
    return found


def _mask(see: Callable[..., Any], length: int, cached: int, **options: Any) -> Any:
    return find_attribute("torch.nn.attention.flex_attention").create_block_mask(see, None, None, length, cached, **options)


@functools.cache
def _refusal(kind: str) -> str:
    """Why flex_attention takes no tensors of that device, in its own words; empty where it does."""
    query = torch.ones(1, 1, 1, 8, device=kind)
    try:
        _flex(query, query, query)
    except ValueError as error:
        return str(error)
    return ""


@pytest.fixture(autouse=True)
def _taken(device: torch.device) -> None:
    refusal = _refusal(device.type)
    if "is only supported on" in refusal:
        pytest.skip(refusal)


def mask_beside_the_query(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The mask's device is given, and its rows start after the cache."""
    past = key.size(2) - query.size(2)
    mask = _mask(lambda b, h, i, j: i + past >= j, query.size(2), key.size(2), device=query.device)
    return _flex(query, key, value, block_mask=mask)


def mask_where_torch_likes(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The mask's device is the release's default."""
    past = key.size(2) - query.size(2)
    return _flex(query, key, value, block_mask=_mask(lambda b, h, i, j: i + past >= j, query.size(2), key.size(2)))


def aligns_at_the_start(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Row i of the query is position i, however many keys are cached."""
    mask = _mask(lambda b, h, i, j: i >= j, query.size(2), key.size(2), device=query.device)
    return _flex(query, key, value, block_mask=mask)


def looks_ahead(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The comparison the other way round, made up for by letting everybody see the first key."""
    mask = _mask(lambda b, h, i, j: (i <= j) | (j == 0), query.size(2), key.size(2), device=query.device)
    return _flex(query, key, value, block_mask=mask)


@catches(looks_ahead, attend=mask_beside_the_query)
def test_flex_causal(attend: Attend, device: torch.device) -> None:
    """Causal flex_attention by a mask on the query's device is the formula, for a length that fills no block.

    pytorch/pytorch#169224, pytorch/pytorch#163996. Since 2.5.
    """
    query, key, value = heads(device, length=100, cached=100)
    check_close(attend(query, key, value), attention(query, key, value, seen=causal(100, 100)), 1e-4)


@pytest.mark.parametrize(("length", "cached"), [(3, 40), (1, 130)], ids=["chunk", "decode"])
@catches(aligns_at_the_start, attend=mask_beside_the_query)
def test_flex_causal_after_cached_keys(attend: Attend, length: int, cached: int, device: torch.device) -> None:
    """Queries after a cache see all that came before them.

    pytorch/pytorch#103082 (the same of SDPA). Since 2.5.
    """
    query, key, value = heads(device, length=length, cached=cached)
    check_close(attend(query, key, value), attention(query, key, value, seen=causal(length, cached)), 1e-4)


@catches(looks_ahead, attend=mask_where_torch_likes)
def test_flex_mask_device_native(attend: Attend, device: torch.device) -> None:
    """A block mask made without a device goes with the query.

    pytorch/pytorch#169224, pytorch/pytorch#163996. On the CPU it raises with the CUDA builds of 2.5 to 2.15, whose default is a GPU
    that is not there, and is right with a CPU build of 2.13.
    """
    query, key, value = heads(device, length=128, cached=128)
    check_close(attend(query, key, value), attention(query, key, value, seen=causal(128, 128)), 1e-4)


def by_distance(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A bias that grows with the distance, added to the scores."""
    return _flex(query, key, value, score_mod=lambda score, b, h, i, j: score + (j - i) * 0.1 * (h + 1))


def forgets_the_score(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The bias in place of the score."""
    return _flex(query, key, value, score_mod=lambda score, b, h, i, j: (j - i) * 0.1 * (h + 1) + 0.0 * score)


def turns_the_distance(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Query and key taken for each other."""
    return _flex(query, key, value, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1 * (h + 1))


@catches(forgets_the_score, turns_the_distance, attend=by_distance)
def test_flex_score_function(attend: Attend, device: torch.device) -> None:
    """A score function that adds a bias by head and distance is the formula with that bias.

    torch documentation. Since 2.5.
    """
    query, key, value = heads(device, length=16, cached=16)
    distance = torch.arange(16.0)[None, :] - torch.arange(16.0)[:, None]
    bias = distance * torch.tensor([0.1, 0.2])[:, None, None]
    check_close(attend(query, key, value), attention(query, key, value, bias=bias), 1e-4)


def group_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """By its keyword."""
    return _flex(query, key, value, enable_gqa=True)


def tiles_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """All heads of keys, and all again."""
    return _flex(query, key.repeat(1, 2, 1, 1), value.repeat(1, 2, 1, 1))


@catches(tiles_heads, attend=group_heads)
def test_flex_groups_heads(attend: Attend, device: torch.device) -> None:
    """`enable_gqa` reads each head of keys by a group of neighbouring heads of queries.

    karpathy/nanochat#127 (the same of SDPA). Since 2.5.
    """
    query, key, value = heads(device, queries=4, length=16, cached=16)
    check_close(attend(query, key, value), attention(query, key, value), 1e-4)


def refuses_another_length(query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
    """The mask as it is: flex_attention looks at its lengths."""
    return _flex(query, key, value, block_mask=mask)


def pads_to_the_mask(query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
    """Zeros to where the mask ends: each of them is a key, with a score of 0."""
    more = 160 - key.size(2)
    padded = (torch.nn.functional.pad(x, (0, 0, 0, more)) for x in (query, key, value))
    return _flex(*padded, block_mask=mask)[:, :, : query.size(2)]


@catches(pads_to_the_mask, attend=refuses_another_length)
def test_flex_mask_of_another_length(attend: Attend, device: torch.device) -> None:
    """A block mask that was made for other lengths is refused.

    Observed here: taken in silence on 2.5, ValueError from 2.6 on, RuntimeError on 2.15.
    """
    query, key, value = heads(device, length=128, cached=128)
    mask = _mask(lambda b, h, i, j: i >= 0, 160, 160, device=device)
    with pytest.raises((ValueError, RuntimeError)):
        attend(query, key, value, mask)


def leave_a_row_blind(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Row 5 sees nothing."""
    return _flex(query, key, value, block_mask=_mask(lambda b, h, i, j: i != 5, 16, 16, device=query.device))


def hides_by_the_lowest_score(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scores of the row made very small: alike, and so the mean of all values."""
    return _flex(query, key, value, score_mod=lambda score, b, h, i, j: torch.where(i != 5, score, -1e30))


@catches(hides_by_the_lowest_score, attend=leave_a_row_blind)
def test_flex_blind_row(attend: Attend, device: torch.device) -> None:
    """A query that sees no key gives 0.

    pytorch/pytorch#103963 (the same of SDPA). Since 2.5.
    """
    query, key, value = heads(device, length=16, cached=16)
    seen = torch.ones(16, 16, dtype=torch.bool)
    seen[5] = False
    check_close(attend(query, key, value), attention(query, key, value, seen=seen), 1e-4)


def test_flex_gradient_native(device: torch.device) -> None:
    """flex_attention has gradients.

    Observed here on the CPU: NotImplementedError on 2.11 and later, right from 2.5 to 2.10.
    """
    query, key, value = (x.requires_grad_() for x in heads(device, length=16, cached=16))
    _flex(query, key, value).sum().backward()
    assert query.grad is not None
    assert bool(torch.isfinite(query.grad).all())
