"""Subjects that packages announce: entry points of the group `torch_conformance.subjects`, of the project or of what is installed."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any

from conformance.distributions import requirement

#: Name of a subject -> `package.module:build`, in `[project.entry-points."torch_conformance.subjects"]`.
GROUP = "torch_conformance.subjects"


@dataclass(frozen=True)
class Announced:
    """What an entry point names, and the distribution that its environments must have; empty for the project's own."""

    reference: str
    requirement: str = ""


def find(name: str, pyproject: dict[str, Any]) -> Announced | None:
    """The subject that is announced as `name` in the project's pyproject, else by an installed distribution; None where nobody does."""
    own = pyproject.get("project", {}).get("entry-points", {}).get(GROUP, {})
    if name in own:
        return Announced(str(own[name]))
    for point in importlib.metadata.entry_points(group=GROUP, name=name):
        return Announced(point.value, requirement(point.dist) if point.dist is not None else "")
    return None
