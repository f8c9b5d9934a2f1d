"""Which line of the user's code is to blame: the innermost frame that is not torch's own."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: A frame of the user's Python: file, line, function.
Frame = tuple[str, int, str]

_SPEC = importlib.util.find_spec("torch")
_TORCH = f"{Path(_SPEC.origin).resolve().parent}/" if _SPEC is not None and _SPEC.origin else "/no torch here/"


def is_users(file: str) -> bool:
    """Whether a file is not torch's own; export names some of its files relative to the place of torch."""
    return not file.startswith(("torch/", "<")) and not str(Path(file).resolve()).startswith(_TORCH)


def innermost(frames: Sequence[Frame]) -> dict[str, Any] | None:
    """File, line and source of the innermost of `frames` (the innermost first) outside torch, or of the innermost of all; None of none."""
    own = [frame for frame in frames if is_users(frame[0])]
    for file, line, _ in (own or frames)[:1]:
        return {"file": file, "line": line, "source": linecache.getline(file, line).strip()}
    return None
