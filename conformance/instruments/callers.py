"""The line of the user's code that a call came from."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

import torch

_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")


def line() -> dict[str, Any]:
    """File, line and source of the innermost frame that is neither torch's nor an instrument's; empty where there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    if frame is None:
        return {}
    file, number = frame.f_code.co_filename, frame.f_lineno
    return {"file": file, "line": number, "source": linecache.getline(file, number).strip()}
