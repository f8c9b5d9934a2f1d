"""Modules whose inputs go by keyword, taken by position: what captures a program knows arguments by their order alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Named(nn.Module):
    """`model`, its inputs by position in the order of `names`."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Any:
        """`inputs` in the order of the names."""
        return self.model(**dict(zip(self.names, inputs)))
