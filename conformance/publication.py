"""What is known of each published column: when it was measured, and what keeps a newer measurement of it from being published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from conformance.artifacts import Problem, read_table, write_json

#: The file beside the published columns.
FILE = "publication.json"
SCHEMA = 1


@dataclass(frozen=True)
class Publication:
    """One column's state. `measured` is the day of the published results, empty where none ever were.

    `held` says why newer results, measured on the day `tried`, were not published; empty for a column that is as it was measured last.
    `accepted` is the reason that somebody gave to publish it against the gate.
    """

    measured: str
    held: list[str] = field(default_factory=list)
    tried: str = ""
    accepted: str = ""

    @property
    def is_held(self) -> bool:
        """Whether the last good column stands in place of newer results."""
        return bool(self.held)

    def age(self, day: str) -> int | None:
        """Days from its measurement to `day` (as 2026-11-30); None where either is no date."""
        try:
            return (date.fromisoformat(day) - date.fromisoformat(self.measured)).days
        except ValueError:
            return None

    @property
    def sentence(self) -> str:
        """The state in a sentence."""
        if not self.is_held:
            return f"published, measured on {self.measured}" + (f" (accepted: {self.accepted})" if self.accepted else "")
        stays = f"the results of {self.measured} stay" if self.measured else "it was never published"
        return f"held back, {stays}: {'; '.join(self.held)}"


def read(folder: Path) -> tuple[dict[str, Publication], list[Problem]]:
    """Cell -> its state, from the file in a folder of published columns; empty where there is none."""
    table, problems = read_table(folder / FILE)
    columns = (table or {}).get("columns")
    listed = columns.items() if isinstance(columns, dict) and not problems else ()
    return {str(cell): _publication(state) for cell, state in listed if isinstance(state, dict)}, problems


def _publication(state: Mapping[str, Any]) -> Publication:
    held = state.get("held")
    texts = {name: str(state.get(name) or "") for name in ("measured", "tried", "accepted")}
    return Publication(held=[str(reason) for reason in held] if isinstance(held, list) else [], **texts)


def write(folder: Path, states: Mapping[str, Publication]) -> None:
    """Writes the states of all columns; equal states give equal bytes."""
    columns = {cell: {name: value for name, value in vars(state).items() if value} for cell, state in sorted(states.items())}
    write_json(folder / FILE, {"schema": SCHEMA, "columns": columns})
