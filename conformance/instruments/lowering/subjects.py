"""Subjects packed for the way down: what they are captured with, and what they are asked afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from conformance.instruments.lowering.journey import Inputs, Luggage
from conformance.subjects.variations import resized

#: Which axes are left open.
SHAPES = ("fixed", "length", "all")
#: Sizes that every subject is asked on, as far as it has such axes and takes them.
SIZES: Mapping[str, Sequence[int]] = {"batch": (1, 2, 3), "length": (1, 5, 7, 16)}


def pack_subject(subject: Any, shapes: str) -> Luggage:
    """The subject with all axes closed (`fixed`), with those open that are not its batch (`length`), or with all of them open.

    Skips where the subject tells no axes that could be left open.
    """
    axes = subject.axes or {}
    names = list(dict.fromkeys(axes.values()))
    if shapes != "fixed" and not names:
        pytest.skip("the subject tells no axes that vary")
    held = {"fixed": set(names), "length": set(names[:1]), "all": set()}[shapes]
    if shapes == "length" and len(names) < 2:
        pytest.skip("the subject has one axis that varies")
    example = subject.inputs()
    varying = [{axis: name for axis, name in named.items() if name not in held} for named in subject.dynamic()]
    inputs = {name: given for name, given in _all(subject).items() if _fits(given, example, varying)}
    bounds = {name: bound for name, bound in (subject.bounds or {}).items() if name not in held}
    return Luggage(subject.build(), inputs, varying, bounds)


def _all(subject: Any) -> dict[str, tuple[torch.Tensor, ...]]:
    """The subject's own variations, then its example at each of SIZES."""
    found = dict(subject.all_inputs())
    sizes = subject.sizes()
    for wanted in _grid([name for name in SIZES if name in sizes]):
        made = resized(subject.inputs(), subject.axes, wanted)
        found.setdefault("_".join(f"{name}{size}" for name, size in wanted.items()), made)
    return found


def _grid(names: Sequence[str]) -> Iterator[dict[str, int]]:
    if not names:
        return
    for size in SIZES[names[0]]:
        rest = list(_grid(names[1:])) or [{}]
        for others in rest:
            yield {names[0]: size, **others}


def _fits(given: Inputs | Sequence[torch.Tensor], example: Sequence[torch.Tensor], varying: Sequence[Mapping[int, str]]) -> bool:
    """Whether a variation differs from the example along open axes alone."""
    for tensor, own, open_axes in zip(given, example, varying):
        same = [tensor.size(axis) == own.size(axis) for axis in range(own.dim()) if axis not in open_axes]
        if tensor.dim() != own.dim() or not all(same):
            return False
    return True
