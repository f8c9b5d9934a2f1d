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
    assert not Errors("part", nn.Identity(), (0.0,) * 7 + (0.9 * eps,)).grow(torch.bfloat16, 4.0)
    assert Errors("part", nn.Identity(), (0.0,) * 7 + (1.1 * eps,)).grow(torch.bfloat16, 4.0)


def test_a_part_that_has_no_source_has_no_line() -> None:
    namespace: dict[str, type[nn.Module]] = {}
    exec("class Typed(nn.Module):\n    def forward(self, x): return x", {"nn": nn}, namespace)
    assert Errors("part", namespace["Typed"](), (0.0,) * 8).line == {}
