"""Decoding with a key-value cache: which position a new token has, and what happens where the table ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Observe = Callable[..., None]


class ChecksTheLengthOnly(RotaryCache):
    """Grows for the length of the input, and slices from the offset."""

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines from `offset`."""
        self.grow_to(length)
        return self.cos[offset : offset + length], self.sin[offset : offset + length]


class StaysAtItsEnd(RotaryCache):
    """Moves a window that reaches beyond the table back to its last rows."""

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the last rows there are."""
        return super().forward(length, min(offset, self.rows - length))


class StartsAgain(RotaryCache):
    """Counts on from the first row after the last one."""

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines, round and round."""
        at = torch.arange(offset, offset + length, device=self.cos.device) % self.rows
        return self.cos[at], self.sin[at]


@values
@pytest.mark.parametrize(("length", "offset"), [(4, 7), (4, 6), (1, 8), (1, 31)], ids=["one_row_left", "two_rows_left", "none_left", "far"])
@catches(ChecksTheLengthOnly, StaysAtItsEnd, StartsAgain, cache=RotaryCache)
def test_offset_counts_toward_the_bound(cache: Callable[..., RotaryCache], length: int, offset: int, device: torch.device) -> None:
    """New tokens after `offset` cached ones get the rows of their own positions, also past the end of an 8-row table.

    karpathy/nanochat#514, karpathy/nanochat#520: a slice is short in silence, and where one row is left it is spread over all new
    tokens. Holds on 1.13 to 2.15.
    """
    cos, sin = cache(8, rows=8, device=device)(length, offset)
    right = rotation.angles(range(offset, offset + length), 8)
    assert rotation.error(cos, right.cos()) < 1e-5
    assert rotation.error(sin, right.sin()) < 1e-5


def refuse_beyond_the_end(cache: RotaryCache, position: int) -> Any:
    """The guard with an end."""
    return cache(1, position)


def slices_beyond_the_end(cache: RotaryCache, position: int) -> Any:
    """A slice: empty."""
    return cache.cos[position : position + 1]


def wraps_around(cache: RotaryCache, position: int) -> Any:
    """The remainder."""
    return cache.cos[position % cache.rows]


@pytest.mark.parametrize("position", [8, 100])
@catches(slices_beyond_the_end, wraps_around, read=refuse_beyond_the_end)
def test_window_has_an_end(read: Callable[[RotaryCache, int], Any], position: int, device: torch.device) -> None:
    """Decoding past the window of a model (`max_rows`) is refused.

    microsoft/onnxruntime#28205 (out of range: returns), karpathy/nanochat#514. Holds on 1.13 to 2.15.
    """
    cache = RotaryCache(8, rows=8, max_rows=8, device=device)
    with pytest.raises(IndexError):
        read(cache, position)


Positions = Callable[[int, int, Tensor], Tensor]


def count_from_the_past(past: int, new: int, kept: Tensor) -> Tensor:
    """All tokens so far, kept or not."""
    return torch.arange(past, past + new)


def starts_at_zero(past: int, new: int, kept: Tensor) -> Tensor:
    """The new tokens alone."""
    return torch.arange(new)


def counts_kept_keys(past: int, new: int, kept: Tensor) -> Tensor:
    """As many as there are keys: stands still once old keys are dropped."""
    return torch.arange(len(kept), len(kept) + new)


def last_keys(keys: Tensor, window: int) -> Tensor:
    """The last `window` of keys `(B, T, ...)`, all of them where there are fewer."""
    return keys[:, max(0, keys.size(1) - window) :]


def slices_from_the_difference(keys: Tensor, window: int) -> Tensor:
    """A difference below zero counts from the end: of 4 keys a window of 6 keeps the last 2."""
    return keys[:, keys.size(1) - window :]


def slices_from_the_end(keys: Tensor, window: int) -> Tensor:
    """As code for a sliding window has it."""
    return keys[:, -window:]


def _check_window(last: Callable[[Tensor, int], Tensor], device: torch.device) -> None:
    keys = torch.arange(8.0, device=device).view(1, 8, 1, 1)
    for held in (1, 4, 6, 8):
        assert last(keys[:, :held], 6).flatten().tolist() == list(range(max(0, held - 6), held))


@values
@catches(slices_from_the_difference, last=last_keys)
def test_window_wider_than_the_cache(last: Callable[[Tensor, int], Tensor], device: torch.device) -> None:
    """A window of 6 keeps the whole cache as long as it holds fewer keys than that, and the last 6 afterwards.

    tenstorrent/tt-xla#4465, tenstorrent/tt-xla#5199. Holds on 1.13 to 2.15.
    """
    _check_window(last, device)


@values
def test_window_wider_than_the_cache_native(device: torch.device) -> None:
    """`keys[:, -window:]` keeps the whole cache as long as it holds fewer keys.

    tenstorrent/tt-xla#4465: XLA refuses a slice that begins before the axis. On the CPU it begins at 0, on 1.13 to 2.15.
    """
    _check_window(slices_from_the_end, device)


def _decode(positions: Positions, q: Tensor, k: Tensor, window: int, chunk: int) -> Tensor:
    """Scores `(T, T)` of single-head `q`, `k` `(1, T, 1, D)`, decoded in chunks, the last `window` keys kept; 0 where not kept."""
    cache, length = RotaryCache(q.size(-1), rows=4, device=q.device), q.size(1)
    scores, kept, keys = torch.zeros(length, length), torch.arange(0), q[:, :0]
    for start in range(0, length, chunk):
        at = positions(start, chunk, kept).to(q.device)
        now = torch.arange(start, start + chunk)
        keys = last_keys(torch.cat([keys, rotate(k[:, start : start + chunk], *cache.at(at))], dim=1), window)
        kept = torch.cat([kept, now])[-window:]
        turned = rotate(q[:, start : start + chunk], *cache.at(at))
        scores[start : start + chunk, kept] = (turned[0, :, 0] @ keys[0, :, 0].t()).cpu()
    return scores


@values
@pytest.mark.parametrize("chunk", [1, 3])
@catches(starts_at_zero, counts_kept_keys, positions=count_from_the_past)
def test_decoding_equals_the_whole(positions: Positions, chunk: int, device: torch.device, observe: Observe) -> None:
    """Scores of tokens decoded one by one, or by three, with the last 6 keys kept, are those of the whole sequence at once.

    karpathy/nanochat#520; lucidrains/rotary-embedding-torch#11 (offsets). Holds on 1.13 to 2.15.
    """
    q, k = uniform((1, 12, 1, 8), "q").to(device), uniform((1, 12, 1, 8), "k").to(device)
    got = _decode(positions, q, k, 6, chunk)
    whole = rotation.turned(q, range(12))[0, :, 0] @ rotation.turned(k, range(12))[0, :, 0].t()
    off = rotation.error(got, torch.where(got != 0, whole, torch.zeros_like(whole)))
    observe("error", off, better="lower")
    assert off < 1e-5


class KeysByOffsetToo(RotaryCache):
    """Keeps what it cut, by length and offset."""

    def __init__(self, head_dim: int, **options: Any) -> None:
        super().__init__(head_dim, **options)
        self.cut: dict[Any, Any] = {}

    def key(self, length: int, offset: int) -> Any:
        """What tells two cuts apart."""
        return length, offset

    def forward(self, length: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines, cut once."""
        key = self.key(length, offset)
        if key not in self.cut:
            self.cut[key] = super().forward(length, offset)
        return self.cut[key]  # type: ignore[no-any-return]


class KeysByLength(KeysByOffsetToo):
    """Keeps what it cut, by length."""

    def key(self, length: int, offset: int) -> Any:
        """The length."""
        return length


@values
@catches(KeysByLength, cache=KeysByOffsetToo)
def test_offset_is_part_of_the_key(cache: Callable[..., RotaryCache], device: torch.device) -> None:
    """A cache of cut tables tells offsets apart: the second token is not turned like the first.

    lucidrains/rotary-embedding-torch#11. Holds on 1.13 to 2.15.
    """
    table = cache(8, rows=8, device=device)
    for offset in range(4):
        assert rotation.error(table(1, offset)[0], rotation.angles([offset], 8).cos()) < 1e-6
