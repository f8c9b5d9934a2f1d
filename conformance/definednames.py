"""The names that a Python source defines at its top, as far as that can be read without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path


def defined(path: Path) -> set[str] | None:
    """The names; None where they cannot be told: a file that does not parse here, a star import, names that are made while it runs."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    if any(isinstance(node, ast.Name) and node.id in ("globals", "exec", "setattr") for node in ast.walk(tree)):
        return None
    names = set(_names(tree.body))
    return None if names & {"*", "__getattr__"} else names


def _names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                yield from (each.id for each in ast.walk(part) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        for field in ("body", "orelse", "finalbody"):
            yield from _names(getattr(node, field, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "items", ())):
            yield from _names(getattr(part, "body", []))
            bound = getattr(part, "optional_vars", None)
            yield from (each.id for each in ast.walk(bound) if isinstance(each, ast.Name)) if bound is not None else ()
