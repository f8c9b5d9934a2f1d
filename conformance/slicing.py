"""Slices of source: definitions of ours gathered with all that they need, as one text that runs on its own."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.globalnames import Definition, NotSliceableError, Outside, Source, Target, bound_by, ours, references, source


@dataclass
class Slice:
    """Definitions gathered from several files, each under one name of its own."""

    names: dict[Target, str] = field(default_factory=dict)
    units: dict[Path, set[ast.stmt]] = field(default_factory=dict)
    #: File -> the files that hold what it needs.
    needs: dict[Path, list[Path]] = field(default_factory=dict)
    _owners: dict[str, object] = field(default_factory=dict)

    def add(self, target: Definition | Outside, written: str) -> None:
        """Take a definition in with all that it needs; `written` is the name it should get if that is free."""
        if target in self.names:
            return
        self._name(target, written)
        if isinstance(target, Definition):
            of = source(target.path)
            self.take(of, of.statements[target.name])

    def _name(self, target: Definition | Outside, written: str) -> None:
        """Give a definition its name: what it is called where it is used, unless something else is called so already."""
        root = isinstance(target, Outside) and not target.name and target.module.partition(".")[0] == written
        owner: object = ("module", written) if root else target
        where = target.module.rpartition(".")[2] if isinstance(target, Outside) else target.path.stem.removeprefix("test_")
        free = (name for name in (written, f"{written}_of_{where}") if self._owners.setdefault(name, owner) == owner)
        name = next(free, None)
        if name is None:
            raise NotSliceableError(f"too many things are called {written}")
        self.names[target] = name

    def take(self, of: Source, node: ast.stmt) -> None:
        """Take in a statement at the top of a file, with all that it needs."""
        held = self.units.setdefault(of.path, set())
        if node in held:
            return
        held.add(node)
        for name in bound_by(node):
            if Definition(of.path, name) not in self.names:
                self._name(Definition(of.path, name), name)
        self.need(of, node)

    def need(self, of: Source, node: ast.AST) -> None:
        """Take in what a node of that file uses."""
        for reference in references(of, node):
            self.add(reference.target, reference.written)
            if isinstance(reference.target, Definition):
                self.needs.setdefault(of.path, []).append(reference.target.path)

    def expression(self, of: Source, node: ast.expr) -> str:
        """The text of an expression of that file, with what it uses taken in."""
        self.need(of, node)
        names = {_place(each.node): self.names[each.target] for each in references(of, node)}
        return ast.unparse(_Renaming(names).visit(copy.deepcopy(node)))

    def text(self, of: Source, node: ast.stmt, *, bare: bool = False) -> str:
        """The source of a statement with every name as it is called here; `bare` leaves decorators and comments above it away."""
        first, last = _extent(of, node, bare=bare)
        lines = [line.encode() for line in of.segment(first, last)]
        for (row, start, end_row, end), replacement in sorted(self._edits(of, node), reverse=True):
            if not first <= row <= end_row <= last:
                continue
            if row != end_row:
                raise NotSliceableError(f"{of.path.name}:{row}: a name over several lines")
            line = lines[row - first]
            lines[row - first] = line[:start] + replacement.encode() + line[end:]
        return b"\n".join(lines).decode()

    def _edits(self, of: Source, node: ast.AST) -> Iterator[tuple[tuple[int, int, int, int], str]]:
        for reference in references(of, node):
            name = self.names.get(reference.target)
            if name is not None and name != ast.unparse(reference.node):
                yield _place(reference.node), name
        for inner in ast.walk(node):
            if isinstance(inner, ast.ImportFrom) and ours(inner.module):
                yield _place(inner), "pass"
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = self.names.get(Definition(of.path, node.name), node.name)
            start = node.col_offset + len("def " if isinstance(node, ast.FunctionDef) else "class ")
            if name != node.name:
                yield (node.lineno, start, node.lineno, start + len(node.name)), name

    def imports(self) -> list[str]:
        """The import lines of everything from outside, sorted."""
        return sorted({_import_line(target, name) for target, name in self.names.items() if isinstance(target, Outside)})

    def sections(self, last: Path) -> Iterator[tuple[Path, list[str]]]:
        """Each file with the texts that were taken of it, after those that it needs; `last` is the file that all else is for."""
        seen = {last}
        paths = [path for first in self.units if first not in seen for path in self._ordered(first, seen)]
        for path in (*paths, *([last] if last in self.units else [])):
            of, held = source(path), self.units[path]
            yield path, [self.text(of, node) for node in of.tree.body if node in held]

    def _ordered(self, path: Path, seen: set[Path]) -> Iterator[Path]:
        seen.add(path)
        for other in self.needs.get(path, []):
            if other not in seen:
                yield from self._ordered(other, seen)
        if path in self.units:
            yield path


def _place(node: ast.expr | ast.stmt) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _extent(of: Source, node: ast.AST, *, bare: bool) -> tuple[int, int]:
    """The first and last line of a node: with its decorators and the comment right above it, unless `bare`."""
    decorators = [] if bare else getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])  # type: ignore[attr-defined]
    while not bare and isinstance(node, ast.stmt) and first > 1 and of.lines[first - 2].startswith("#"):
        first -= 1
    return first, node.end_lineno  # type: ignore[attr-defined]


class _Renaming(ast.NodeTransformer):
    """Puts other names in place of nodes, told apart by where they stand."""

    def __init__(self, names: dict[tuple[int, int, int, int], str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        """The node, or the name that stands for it."""
        if isinstance(node, (ast.Name, ast.Attribute)) and _place(node) in self.names:
            return ast.Name(self.names[_place(node)], node.ctx)
        return self.generic_visit(node)


def _import_line(target: Outside, name: str) -> str:
    if target.name:
        return f"from {target.module} import {target.name}" + (f" as {name}" if name != target.name else "")
    plain = name in (target.module, target.module.partition(".")[0])
    return f"import {target.module}" + ("" if plain else f" as {name}")
