"""Requirement sets: what a case or subject needs beside torch and pytest, and the name of the environment that has it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from packaging.requirements import Requirement

#: The environment of cases that need nothing more.
BASE = "base"


def environment_name(requirements: Iterable[str]) -> str:
    """The name of a requirement set: the packages' names, and four hex digits where versions or extras are asked for."""
    wanted = sorted(set(requirements))
    if not wanted:
        return BASE
    names = "-".join(sorted({re.sub(r"[^a-z0-9]+", "_", Requirement(need).name.lower()) for need in wanted}))
    plain = all(Requirement(need).name == need for need in wanted)
    return names if plain else f"{names}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:4]}"
