"""Plots: an observed number over releases, as a small SVG that a screen reader reads as a list of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version

from conformance.compare import said

WIDTH, HEIGHT, MARGIN = 320, 64, 8


@dataclass(frozen=True)
class Plot:
    """One number over the releases of one group of columns: `(release, value)` in order, and whether lower or higher is better.

    `planned` are all releases of the group: one without the number parts its neighbours where they are told together.
    """

    name: str
    group: str
    better: str
    points: Sequence[tuple[str, float]]
    planned: Sequence[Version] = ()

    @property
    def flat(self) -> bool:
        """Whether the value is the same everywhere: said in words, not drawn."""
        return len({value for _, value in self.points}) == 1

    @property
    def values(self) -> str:
        """All values in words, runs of equal ones together."""
        runs: list[list[tuple[str, float]]] = []
        for point in self.points:
            if runs and runs[-1][-1][1] == point[1]:
                runs[-1].append(point)
            else:
                runs.append([point])
        return ", ".join(f"{number(run[0][1])} on {said((Version(release) for release, _ in run), self.planned)}" for run in runs)

    @property
    def dots(self) -> list[tuple[float, float, str]]:
        """Where each point lies, with its label."""
        values = [value for _, value in self.points if math.isfinite(value)]
        least, most = (min(values), max(values)) if values else (0.0, 0.0)
        scale = (HEIGHT - 2 * MARGIN) / ((most - least) or 1.0)
        step = (WIDTH - 2 * MARGIN) / max(1, len(self.points) - 1)
        found = []
        for index, (release, value) in enumerate(self.points):
            height = (value if math.isfinite(value) else most) - least
            found.append((round(MARGIN + index * step, 1), round(HEIGHT - MARGIN - height * scale, 1), f"{release}: {number(value)}"))
        return found

    @property
    def path(self) -> str:
        """The points of the line."""
        return " ".join(f"{x:g},{y:g}" for x, y, _ in self.dots)


def number(value: float) -> str:
    """A number as short as it stays true: whole ones whole, others in four digits."""
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
