"""Which line made torch.export fix a size: its errors name the size and not the line, but each guard that it set knows where."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from conformance.instruments.lowering.blame import Frame, innermost, is_users

#: A place as torch's SLoc prints it: a path without what it shares with torch's own, line, function.
_PLACE = re.compile(r"([^\s()]+):(\d+) in (\w+)")


def of_error(error: BaseException) -> list[dict[str, Any]]:
    """The lines that set the guards of the export that ended in `error`, in order; those of the environment found in its frames."""
    return [line for environment in _environments(error.__traceback__) for line in _lines(environment)]


def of_program(program: Any) -> list[dict[str, Any]]:
    """The lines that set the guards of an exported program."""
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return list(_lines(mode.shape_env))
    return []


def _environments(trace: TracebackType | None) -> Iterator[Any]:
    seen: set[int] = set()
    while trace is not None:
        for held in list(trace.tb_frame.f_locals.values()):
            environment = held if type(held).__name__ == "ShapeEnv" else getattr(held, "shape_env", None) if _is_mode(held) else None
            if environment is not None and id(environment) not in seen:
                seen.add(id(environment))
                yield environment
        trace = trace.tb_next


def _is_mode(held: Any) -> bool:
    return type(held).__name__ == "FakeTensorMode"


def _lines(environment: Any) -> Iterator[dict[str, Any]]:
    """Lines of the user's code: a guard that torch sets for itself, as of a broadcast, knows none."""
    for guard in environment.guards:
        found = innermost(_frames(guard))
        if found is not None and found["source"] and is_users(found["file"]):
            yield found


def _frames(guard: Any) -> list[Frame]:
    """The frames of a guard, the innermost first: since 2.6 a place in words, before it a stack."""
    place = _PLACE.search(str(getattr(guard, "sloc", "")))
    if place is not None:
        return [(_file(place[1]), int(place[2]), place[3])]
    stack = getattr(guard, "stack", None)
    summary = stack.summary() if hasattr(stack, "summary") else stack or []
    return [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(summary)]


def _file(told: str) -> str:
    """The file of a loaded module whose path ends as `told` does."""
    files = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
    return next((file for file in files if file.endswith(f"/{told}")), told)
