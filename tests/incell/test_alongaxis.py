"""Where a model's rounding grows along an axis of its input."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from conformance.instruments.alongaxis import Errors, errors
from conformance.subjects.references import load
from conformance.subjects.variations import resized

MODELS = Path(__file__).parent.parent / "models"


def _errors(build: str, size: int) -> list[Errors]:
    subject = load("rotated", f"{MODELS / 'rotated.py'}:{build}")
    longer = resized(subject.inputs(), subject.axes, {"length": size})
    return errors(subject.build, longer, torch.bfloat16, torch.device("cpu"), size)


@pytest.mark.parametrize("size", [64, 320])
def test_rounding_is_alike_everywhere_where_positions_are_exact(size: int) -> None:
    found = _errors("exact", size)
    assert {each.name for each in found} == {"embedding", "rotary", "head", "Net"}
    assert not any(each.grow(torch.bfloat16, 2.0) for each in found)


@pytest.mark.parametrize("size", [64, 320])
def test_the_part_whose_frequencies_were_cast_is_named_with_its_line(size: int) -> None:
    grown = [each for each in _errors("cast", size) if each.grow(torch.bfloat16, 4.0)]
    assert [each.name for each in grown] == ["rotary", "head", "Net"]
    assert (grown[0].of_torch, grown[1].of_torch) == (False, True)
    assert grown[0].line["source"] == "def forward(self, x: Tensor) -> Tensor:"


def test_errors_below_one_rounding_do_not_count() -> None:
    eps = torch.finfo(torch.bfloat16).eps
    assert not Errors("part", Normed(), (0.0,) * 7 + (0.9 * eps,)).grow(torch.bfloat16, 4.0)
    assert Errors("part", Normed(), (0.0,) * 7 + (1.1 * eps,)).grow(torch.bfloat16, 4.0)


class Normed(nn.Module):
    """A norm first, as a block begins that has no positions; `(B, T, 16)`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(self.norm(x))


def test_a_layer_of_torchs_own_is_not_blamed_for_positions() -> None:
    """Of what stands far from zero a norm takes most away, and leaves the rounding."""
    spread = torch.linspace(0, 50, 2 * 320 * 16).sin().view(2, 320, 16)
    far = torch.arange(320.0).view(1, -1, 1) / 8 + spread
    found = {each.name: each for each in errors(Normed, (far,), torch.bfloat16, torch.device("cpu"), 320)}
    assert set(found) == {"norm", "out", "Normed"}
    assert not any(each.grow(torch.bfloat16, 4.0) for each in found.values())
    eps = torch.finfo(torch.bfloat16).eps
    growing, alike = (eps,) * 7 + (9 * eps,), (eps,) * 8
    assert Errors("norm", nn.LayerNorm(2), growing, (alike, growing)).grow(torch.bfloat16, 4.0)
    assert not Errors("norm", nn.LayerNorm(2), growing, (alike,)).grow(torch.bfloat16, 4.0)


def test_inputs_that_are_made_longer_do_not_drift() -> None:
    (longer,) = resized((torch.linspace(-1, 1, 128).view(2, 4, 16),), {(0, 1): "length"}, {"length": 320})
    assert longer.abs().max() < 1.5
    assert not torch.equal(longer[:, :4], longer[:, 4:8])


def test_a_part_that_has_no_source_has_no_line() -> None:
    namespace: dict[str, type[nn.Module]] = {}
    exec("class Typed(nn.Module):\n    def forward(self, x): return x", {"nn": nn}, namespace)
    assert Errors("part", namespace["Typed"](), (0.0,) * 8).line == {}
