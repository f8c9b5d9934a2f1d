"""Content keys: a record stays valid until its case, what the case imports, its environment or its limits change."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent
_IN_CELL = ("incell", "guards", "instruments", "subjects")


def digest(*parts: Any) -> str:
    """A short digest of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


@functools.cache
def in_cell_code() -> str:
    """The digest of everything of ours that runs inside a cell."""
    return files_digest(path for folder in _IN_CELL for path in (_PACKAGE / folder).rglob("*.py"))


def files_digest(paths: Iterable[Path]) -> str:
    """The digest of files by name and content, in any order."""
    return digest(*sorted((path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths))


@functools.cache
def case_code(path: Path) -> str:
    """The digest of a case file and of what may be imported from beside it: helper modules and conftest files up to the family."""
    beside = [other for other in path.parent.glob("*.py") if other == path or not other.name.startswith("test_")]
    return files_digest([*beside, *path.parent.parent.glob("conftest.py")])


def record_key(entry: dict[str, Any], surroundings: Any) -> str:
    """The key of a case's record: equal keys, equal facts. `surroundings` is all that it depends on beside its own code and limits."""
    limits = (entry.get("timeout_s"), entry.get("memory_mb"))
    code = (in_cell_code(), case_code(Path(entry["file"])), entry["case"], entry.get("expected"))
    return digest(code, limits, surroundings)
