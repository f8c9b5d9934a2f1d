"""The public names of torch that its oldest measured release has not, from the table that ships with the tool."""

from __future__ import annotations

import functools
import json
from pathlib import Path

#: Release -> names that were first seen in it, in order of releases. Written by `conformance apis --table`.
DATA = Path(__file__).resolve().parent.parent / "data" / "apis.json"


@functools.cache
def names() -> frozenset[str]:
    """Dotted names, and `name(keyword)` for what a callable came to take."""
    return frozenset(name for listed in _table()[1:] for name in listed)


@functools.cache
def older() -> frozenset[str]:
    """The names that the oldest release has."""
    return frozenset(_table()[0])


def _table() -> list[list[str]]:
    return list(json.loads(DATA.read_text(encoding="utf-8")).values())
