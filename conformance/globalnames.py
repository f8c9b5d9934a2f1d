"""What names at the top of a file of ours stand for, and where they are used. Read from source, nothing is imported."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).parent
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class NotSliceableError(Exception):
    """The source does something that a slice cannot carry; the message says what."""


@dataclass(frozen=True)
class Outside:
    """A module of somebody else's, or a name in one: `import module` or `from module import name`."""

    module: str
    name: str = ""


@dataclass(frozen=True)
class Module:
    """A module of ours as a whole: only its attributes can be sliced."""

    path: Path


@dataclass(frozen=True)
class Definition:
    """A name at the top of a module of ours, and where it is bound."""

    path: Path
    name: str


Target = Outside | Module | Definition


class Source:
    """One file of ours: its statements, and what each name at its top stands for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.tree = ast.parse("\n".join(self.lines))
        self.statements: dict[str, ast.stmt] = {}
        self.imported: dict[str, Target] = {}
        for node in self.tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imported.update(_imports(node))
            elif not _for_types_only(node):
                self.statements.update(dict.fromkeys(bound_by(node), node))
        for inner in ast.walk(self.tree):
            if isinstance(inner, ast.ImportFrom) and ours(inner.module) and inner not in self.tree.body:
                self.imported = {**_imports(inner), **self.imported}

    def target(self, name: str) -> Target | None:
        """What a global name stands for; None for builtins and for what only annotations know."""
        if name in self.statements:
            return Definition(self.path, name)
        found = self.imported.get(name)
        return _followed(found) if isinstance(found, Definition) else found

    def segment(self, first: int, last: int) -> list[str]:
        """Lines `first` to `last`, counted from 1."""
        return self.lines[first - 1 : last]


@functools.cache
def source(path: Path) -> Source:
    """The file, read once."""
    return Source(path)


def _followed(found: Definition) -> Target:
    """The definition behind a name that its module imports itself."""
    behind = source(found.path).target(found.name)
    if behind is None:
        raise NotSliceableError(f"{found.path.name} makes {found.name} when it is asked for")
    return behind


def ours(module: str | None) -> bool:
    """Whether a module is of this package."""
    return (module or "").partition(".")[0] == "conformance"


def _file(module: str) -> Path | None:
    base = _PACKAGE.parent.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _imports(node: ast.Import | ast.ImportFrom) -> dict[str, Target]:
    """Local name -> what it stands for."""
    found: dict[str, Target] = {}
    for alias in node.names:
        if isinstance(node, ast.Import):
            found[alias.asname or alias.name.partition(".")[0]] = Outside(alias.name)
        elif not ours(node.module):
            found[alias.asname or alias.name] = Outside(node.module or "", alias.name)
        else:
            whole, parent = _file(f"{node.module}.{alias.name}"), _file(node.module or "")
            assert parent is not None
            found[alias.asname or alias.name] = Module(whole) if whole else Definition(parent, alias.name)
    return {name: target for name, target in found.items() if getattr(target, "module", "") != "__future__"}


def _for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def bound_by(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
            yield inner.name
        elif isinstance(inner, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in inner.names)


@dataclass
class Reference:
    """A use of a global name: the node to replace, and what it stands for."""

    node: ast.expr
    target: Definition | Outside
    written: str


def references(of: Source, node: ast.AST) -> list[Reference]:
    """Every use of a global name in `node`, annotations included; names that a function binds itself are none."""
    return list(_Globals(of).within(node, frozenset()))


class _Globals:
    def __init__(self, of: Source) -> None:
        self.of = of

    def within(self, node: ast.AST, local: frozenset[str]) -> Iterator[Reference]:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in local:
            whole = self.of.target(node.value.id)
            if isinstance(whole, Module):
                yield Reference(node, _attribute(whole, node.attr), node.attr)
                return
        if isinstance(node, ast.Name) and node.id not in local:
            yield from self._name(node)
        own = local | _locals(node) if isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS)) else local
        around = _evaluated_around(node)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.arguments):
                yield from self.within(child, local if child in around else own)
        for child in around:
            if isinstance(getattr(node, "args", None), ast.arguments) and child not in getattr(node, "decorator_list", ()):
                yield from self.within(child, local)

    def _name(self, node: ast.Name) -> Iterator[Reference]:
        target = self.of.target(node.id)
        if isinstance(target, Module):
            raise NotSliceableError(f"{self.of.path.name} uses the module {node.id} as a whole")
        if target is not None:
            yield Reference(node, target, node.id)


def _attribute(whole: Module, name: str) -> Definition | Outside:
    target = source(whole.path).target(name)
    if not isinstance(target, (Definition, Outside)):
        raise NotSliceableError(f"{whole.path.name} has no {name} to slice")
    return target


def _evaluated_around(node: ast.AST) -> list[ast.AST]:
    """The parts of a function that the scope around it evaluates: decorators, defaults and annotations."""
    arguments = getattr(node, "args", None)
    if not isinstance(arguments, ast.arguments):
        return []
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [each.annotation for each in every if each is not None]
    parts = [*getattr(node, "decorator_list", []), *arguments.defaults, *arguments.kw_defaults, *annotations]
    return [part for part in parts if part is not None]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that belong to its own scope."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            yield from _own(child)


def _locals(function: ast.AST) -> frozenset[str]:
    """The names that a function or comprehension binds; what it imports of ours counts as global."""
    found: set[str] = set()
    declared: set[str] = set()
    for node in _own(function):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not ours(node.module)):
            found.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Global):
            declared.update(node.names)
    return frozenset(found - declared)
