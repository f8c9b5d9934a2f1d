"""Positions of more than one axis, as vision models have them: time, height and width share the pairs of a head."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

#: Pairs of a head of 16 that go by time, height and width.
SECTIONS = (2, 3, 3)
DIM = 2 * sum(SECTIONS)

Table = Callable[[Tensor, str], Tensor]


def _axes(layout: str) -> list[int]:
    """Which axis each pair goes by: in blocks as Qwen2-VL has it, or in turn until a section is used up, as Qwen3-VL has it."""
    if layout == "blocks":
        return [axis for axis, count in enumerate(SECTIONS) for _ in range(count)]
    left, axes = list(SECTIONS), []
    while len(axes) < sum(SECTIONS):
        for axis in range(3):
            if left[axis]:
                left[axis] -= 1
                axes.append(axis)
    return axes


def by_axis_of_each_pair(tables: Tensor, layout: str) -> Tensor:
    """Of tables `(3, T, R/2)`, one an axis, the column of the axis that a pair goes by."""
    return torch.stack([tables[axis, :, pair] for pair, axis in enumerate(_axes(layout))], dim=-1)


def takes_the_other_layout(tables: Tensor, layout: str) -> Tensor:
    """In turn where blocks are meant, and blocks where it goes in turn."""
    return by_axis_of_each_pair(tables, "in_turn" if layout == "blocks" else "blocks")


def begins_each_section_anew(tables: Tensor, layout: str) -> Tensor:
    """The first columns of each axis: its frequencies begin again with the fastest."""
    count = [0, 0, 0]
    columns = []
    for axis in _axes(layout):
        columns.append(tables[axis, :, count[axis]])
        count[axis] += 1
    return torch.stack(columns, dim=-1)


def goes_by_time_alone(tables: Tensor, layout: str) -> Tensor:
    """One axis for all pairs: right for text, whose three positions are equal."""
    return tables[0]


def _turned(pick: Table, layout: str, x: Tensor, positions: Tensor) -> Tensor:
    cos, sin = RotaryCache(DIM, device=x.device).at(positions)
    return rotate(x, pick(cos, layout), pick(sin, layout))


def _by_definition(x: Tensor, positions: Tensor, layout: str) -> Tensor:
    """Each pair turned alone, in float64, by the position of its axis."""
    turned = torch.zeros(x.shape, dtype=torch.float64)
    for pair, axis in enumerate(_axes(layout)):
        both = [pair, pair + DIM // 2]
        turned[..., both] = rotation.turned(x, positions[axis].cpu())[..., both]
    return turned


@values
@pytest.mark.parametrize("layout", ["blocks", "in_turn"])
@catches(takes_the_other_layout, begins_each_section_anew, goes_by_time_alone, pick=by_axis_of_each_pair)
def test_pairs_go_by_their_axis(pick: Table, layout: str, device: torch.device) -> None:
    """A patch is turned by its time, height and width, each on the pairs that are its own.

    alibaba/MNN#4133, Blaizzy/mlx-vlm#576, vllm-project/vllm-omni#1784: text is right in either layout, images are not. 1.13 to 2.15.
    """
    x = uniform((1, 6, 2, DIM)).to(device)
    positions = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 7, 0, 3, 7], [0, 5, 0, 5, 2, 9]], device=device)
    assert rotation.error(_turned(pick, layout, x, positions), _by_definition(x, positions, layout)) < 1e-5


def next_after_the_largest(positions: Tensor) -> int:
    """Text goes on behind the largest position of any axis."""
    return int(positions.max()) + 1


def next_by_length(positions: Tensor) -> int:
    """As many as there are tokens: an image of 3 x 3 patches counts 9, and takes up 3."""
    return positions.size(-1)


def next_by_time(positions: Tensor) -> int:
    """Behind the last position in time: the text stands inside of the image."""
    return int(positions[0].max()) + 1


@values
@catches(next_by_length, next_by_time, follow=next_after_the_largest)
def test_text_goes_on_behind_an_image(follow: Callable[[Tensor], int], device: torch.device) -> None:
    """After two tokens of text and an image of 3 by 3 patches the next token stands at 5: at decoding as in the prompt.

    Blaizzy/mlx-vlm#1621, huggingface/lerobot#3648. Observed on 1.13 to 2.15.
    """
    text = torch.tensor([[0, 1]] * 3, device=device)
    rows = torch.arange(3, device=device)
    image = 2 + torch.stack([torch.zeros_like(rows).repeat(3), rows.repeat_interleave(3), rows.repeat(3)])
    assert follow(torch.cat([text, image], dim=1)) == 5
