"""Which cases a depth plans on which device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.incell.collection import _planned
from conformance.incell.settings import Settings


class Item:
    """As much of a pytest item as planning asks for; each of `marks` holds the devices that a `deep` names."""

    path = "cases/init/test_x.py"
    conformance_twin = None

    def __init__(self, marks: tuple[tuple[str, ...], ...]) -> None:
        self.marks = [SimpleNamespace(name="deep", args=devices) for devices in marks]

    def iter_markers(self, name: str) -> list[Any]:
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> Any:
        return next(iter(self.iter_markers(name)), None)


@pytest.mark.parametrize(
    ("marks", "device", "depth", "planned"),
    [
        ((), "cpu", "default", True),
        (((),), "cpu", "default", False),
        (((),), "cpu", "deep", True),
        ((("xla",),), "cpu", "default", True),
        ((("xla",),), "xla", "default", False),
        ((("xla", "mps"),), "mps", "default", False),
        ((("xla",),), "xla", "deep", True),
        ((("xla",), ()), "cpu", "default", False),
    ],
)
def test_deep_cases_are_planned_where_they_are_cheap(marks: tuple[tuple[str, ...], ...], device: str, depth: str, planned: bool) -> None:
    assert _planned(Item(marks), Settings(device=device, depth=depth)) is planned
