"""Which channels a rotation pairs, in which direction it turns, and along which axis the table lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, halves_from_pairs, rotate
from conformance.incell import catches, requires, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Turn = Callable[..., Tensor]
LAYOUTS = pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "pairs"])


def takes_other_layout(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Pair the channels as the other half of all models does."""
    return rotate(x, cos, sin, interleaved=not interleaved)


def turns_other_way(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Turn by +angle where the model learned -angle: positions count backwards."""
    return rotate(x, cos, -sin, interleaved=interleaved)


def overwrites_first_half(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """In place: the second channel of a pair is turned with what the first has become."""
    out = x.clone()
    half = x.size(-1) // 2
    first, second = (out[..., 0::2], out[..., 1::2]) if interleaved else (out[..., :half], out[..., half:])
    first.mul_(cos[:, None]).add_(second * sin[:, None])
    second.mul_(cos[:, None]).sub_(first * sin[:, None])
    return out


def turn_by_definition(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """The guard."""
    return rotate(x, cos, sin, interleaved=interleaved)


@values
@LAYOUTS
@catches(takes_other_layout, turns_other_way, overwrites_first_half, turn=turn_by_definition)
def test_rotation_is_the_complex_product(turn: Turn, interleaved: bool, device: torch.device, observe: Callable[..., None]) -> None:
    """A rotation is the product of each pair, taken for a complex number, with exp(-i angle), in both layouts.

    karpathy/nanochat#264, huggingface/transformers#39687; in place: unslothai/unsloth#5001 is the kin. Holds on 1.13 to 2.15.
    """
    x = uniform((2, 16, 3, 8)).to(device)
    off = rotation.error(
        turn(x, *RotaryCache(8, rows=16, device=device)(16), interleaved), rotation.turned(x, range(16), interleaved=interleaved)
    )
    observe("error", off, better="lower")
    assert off < 1e-5


def multiply_pairs(x: Tensor, table: Tensor) -> Tensor:
    """`view_as_complex` of neighbouring channels."""
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * table[:, None]).flatten(-2)


def multiplies_halves(x: Tensor, table: Tensor) -> Tensor:
    """The same for a model that pairs halves: the numbers fit, the pairs do not."""
    halves = x.unflatten(-1, (2, x.size(-1) // 2)).transpose(-1, -2).contiguous()
    return torch.view_as_real(torch.view_as_complex(halves) * table[:, None]).flatten(-2)


def conjugates_nothing(x: Tensor, table: Tensor) -> Tensor:
    """A table of exp(+i angle) beside code that turns by -angle."""
    return multiply_pairs(x, table.conj().resolve_conj())


@values
@requires("complex64")
@catches(multiplies_halves, conjugates_nothing, multiply=multiply_pairs)
def test_complex_code_equals_real_code(multiply: Turn, device: torch.device) -> None:
    """Complex code and interleaved real code turn alike.

    tenstorrent/tt-metal#26844, karpathy/llama2.c#262. Holds on 1.13 to 2.15.
    """
    x, cache = uniform((2, 16, 3, 8)).to(device), RotaryCache(8, rows=16, device=device)
    table = torch.complex(cache.cos, -cache.sin)
    difference = (multiply(x, table) - rotate(x, *cache(16), interleaved=True)).abs().max()
    assert float(difference) < 1e-5


Convert = Callable[[Tensor, Tensor, int, int], "tuple[Tensor, Tensor]"]


def reorder_both(queries: Tensor, keys: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    """Queries and keys, each with its own number of heads."""
    return halves_from_pairs(queries, heads), halves_from_pairs(keys, kv_heads)


def loads_as_they_are(queries: Tensor, keys: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    """The checkpoint's rows in their order."""
    return queries, keys


def reorders_queries_only(queries: Tensor, keys: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    """Queries alone."""
    return halves_from_pairs(queries, heads), keys


def takes_query_heads_for_keys(queries: Tensor, keys: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    """Keys as if they had as many heads as queries: the sizes divide, so nothing is said."""
    return halves_from_pairs(queries, heads), halves_from_pairs(keys, heads)


def reorders_twice(queries: Tensor, keys: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    """A checkpoint that was converted before."""
    return reorder_both(*reorder_both(queries, keys, heads, kv_heads), heads, kv_heads)


def _scores(queries: Tensor, keys: Tensor, x: Tensor, interleaved: bool) -> Tensor:
    table = RotaryCache(8, rows=6, device=x.device)(6)
    q, k = ((x @ weight.t()).unflatten(-1, (-1, 8)) for weight in (queries, keys))
    q, k = (rotate(heads, *table, interleaved=interleaved) for heads in (q, k))
    return q.transpose(1, 2) @ k.repeat_interleave(2, dim=2).permute(0, 2, 3, 1)


@values
@catches(loads_as_they_are, reorders_queries_only, takes_query_heads_for_keys, reorders_twice, convert=reorder_both)
def test_checkpoint_of_the_other_layout(convert: Convert, device: torch.device) -> None:
    """An interleaved checkpoint gives the same scores to code that pairs halves, once the rows of queries and keys are reordered.

    huggingface/nanotron#427 (converted without it, in silence), ooples/AiDotNet#2074, InternLM/lmdeploy#2639. Holds on 1.13 to 2.15.
    """
    x, queries, keys = uniform((1, 6, 5)).to(device), uniform((32, 5), "q").to(device), uniform((16, 5), "k").to(device)
    got = _scores(*convert(queries, keys, 4, 2), x, interleaved=False)
    torch.testing.assert_close(got, _scores(queries, keys, x, interleaved=True), rtol=1e-4, atol=1e-5)


def turn_first_channels(x: Tensor) -> Tensor:
    """The first 8 of 16 channels turn, at the frequencies of 8."""
    return rotate(x, *RotaryCache(16, rows=x.size(1), rotary_dim=8, device=x.device)(x.size(1)))


def spreads_frequencies_over_the_head(x: Tensor) -> Tensor:
    """The first 8 channels turn at the first frequencies of 16."""
    cos, sin = RotaryCache(16, rows=x.size(1), device=x.device)(x.size(1))
    return rotate(x, cos[:, :4], sin[:, :4])


def pairs_across_the_head(x: Tensor) -> Tensor:
    """Channel i turns with channel i + 8."""
    cos, sin = RotaryCache(16, rows=x.size(1), rotary_dim=8, device=x.device)(x.size(1))
    still = torch.zeros_like(sin)
    return rotate(x, torch.cat([cos, still + 1], dim=-1), torch.cat([sin, still], dim=-1))


def turns_the_whole_head(x: Tensor) -> Tensor:
    """All 16 channels turn."""
    return rotate(x, *RotaryCache(16, rows=x.size(1), device=x.device)(x.size(1)))


@values
@catches(spreads_frequencies_over_the_head, pairs_across_the_head, turns_the_whole_head, turn=turn_first_channels)
def test_part_of_a_head(turn: Turn, device: torch.device) -> None:
    """With `rotary_dim` R of D channels the first R turn, paired and paced by R, and the others pass.

    pie-project/pie#602 (paced by D: right at position 0, drifting with distance), huggingface/transformers#48652. 1.13 to 2.15.
    """
    x = uniform((1, 32, 2, 16)).to(device)
    right = torch.cat([rotation.turned(x[..., :8], range(32)), x[..., 8:].cpu().double()], dim=-1)
    assert rotation.error(turn(x), right) < 1e-5


def align_with_positions(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The table lies along T of `(B, T, H, D)`."""
    return rotate(x, cos, sin)


def _unchecked(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.size(-1) // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)


def aligns_with_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The table lies along the axis before the channels."""
    return _unchecked(x, cos, sin)


def aligns_with_batch(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The table lies along the first axis."""
    return _unchecked(x, cos[:, None, None], sin[:, None, None])


@values
@pytest.mark.parametrize("shape", [(4, 4, 4, 8), (1, 4, 1, 8)], ids=["equal_sizes", "one_sequence_one_head"])
@catches(aligns_with_heads, aligns_with_batch, turn=align_with_positions)
def test_table_lies_along_positions(turn: Turn, shape: tuple[int, ...], device: torch.device) -> None:
    """A table is spread over sequences and heads, never over positions, also where sizes are equal or one and nothing raises.

    linkedin/Liger-Kernel#342 (one head, not turned at all) is the kin. Observed here, 1.13 to 2.15.
    """
    x = uniform(shape).to(device)
    assert rotation.error(turn(x, *RotaryCache(8, rows=4, device=device)(4)), rotation.turned(x, range(4))) < 1e-5


def refuse_other_sizes(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The guard compares rows with positions."""
    return rotate(x, cos, sin)


def spreads_one_row(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Broadcasting: one row serves all positions."""
    return _unchecked(x, cos[:, None], sin[:, None])


@catches(spreads_one_row, turn=refuse_other_sizes)
def test_one_row_is_not_spread(turn: Turn, device: torch.device) -> None:
    """Heads `(B, 4, H, D)` beside a table of one row are refused with a ValueError; broadcasting would turn all positions alike.

    Observed here: a slice past the end of a table is short in silence, down to one row. 1.13 to 2.15.
    """
    x: Any = torch.ones(2, 4, 3, 8, device=device)
    with pytest.raises(ValueError, match="rows of the rotary table"):
        turn(x, *RotaryCache(8, rows=1, device=device)(1))
