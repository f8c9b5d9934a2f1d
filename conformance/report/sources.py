"""The sources of cases: docstring, code, and the pair of idioms with theirs. Read, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from conformance.catalogue import constants_of, twins_of
from conformance.plan import CaseFile

_PACKAGE = Path(__file__).parent.parent
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


@dataclass(frozen=True)
class Idiom:
    """One way to write a thing: its name, its code where that is at hand, and for a wrong one the verdict that it must get."""

    name: str
    code: str
    where: str
    verdict: str = ""

    @property
    def stated(self) -> list[tuple[str, str]]:
        """The verdicts that it must get, each with the parameter's value that it holds for, empty for all."""
        parts = (part.strip().rpartition(": ") for part in self.verdict.split(","))
        return [(value, verdict) for value, _, verdict in parts if verdict]


@dataclass(frozen=True)
class CaseSource:
    """One case function. `file` is its path below the case root, `file_case` the id of its file, `guards` are those it goes through."""

    name: str
    file: str
    file_case: str
    line: int
    title: str
    text: str
    code: str
    right: Idiom | None
    wrong: tuple[Idiom, ...]
    guards: frozenset[str]

    @property
    def paragraphs(self) -> list[str]:
        """What the docstring says below its first line, a text for each paragraph."""
        return [" ".join(paragraph.split()) for paragraph in self.text.split("\n\n") if paragraph.strip()]


@dataclass(frozen=True)
class SourceFile:
    """One file of cases as text, and where it was read from."""

    file_case: str
    file: str
    text: str
    path: Path | None = None


def read_files(files: Iterable[CaseFile]) -> list[SourceFile]:
    """The text of each file; one that cannot be read is left out: the page of its cases says so."""
    found = []
    for file in files:
        try:
            text = file.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        found.append(SourceFile(file.case, file.path.relative_to(file.root).as_posix(), text, file.path))
    return found


def case_sources(files: Iterable[SourceFile]) -> dict[str, CaseSource]:
    """`family.name` -> the source of the case function, for every file that parses."""
    found = {}
    for file in files:
        try:
            module = _Module(file.text)
        except (SyntaxError, ValueError):
            continue
        family = file.file_case.partition(".")[0]
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                name = f"{family}.{node.name.removeprefix('test_')}"
                found[name] = _case(name, node, module, file)
    return found


def guard_users(sources: Mapping[str, CaseSource]) -> dict[str, list[str]]:
    """Guard -> the cases, without their brackets, that go through it."""
    found: dict[str, list[str]] = {}
    for case, source in sorted(sources.items()):
        for guard in sorted(source.guards):
            found.setdefault(guard, []).append(case)
    return found


def _case(name: str, node: ast.FunctionDef, module: _Module, file: SourceFile) -> CaseSource:
    title, _, rest = (ast.get_docstring(node) or "").partition("\n")
    right, wrong = _pair(node, module)
    return CaseSource(
        name, file.file, file.file_case, node.lineno, title, rest.strip(), module.code(node), right, wrong, module.guards(node)
    )


def _pair(node: ast.FunctionDef, module: _Module) -> tuple[Idiom | None, tuple[Idiom, ...]]:
    """The right idiom and the wrong ones, from the decorator `catches`."""
    right: Idiom | None = None
    wrong: list[Idiom] = []
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "catches":
            stated = [twins_of(argument, module.constants) for argument in decorator.args]
            wrong += [module.idiom(name, verdict) for name, verdict in stated]
            named = [keyword.value for keyword in decorator.keywords if not isinstance(keyword.value, ast.Constant)]
            right = module.idiom(ast.unparse(named[0])) if named else right
    return right, tuple(wrong)


class _Module:
    """The names that one file of cases defines and imports."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.constants = dict(constants_of(self.tree.body))
        self.defined: dict[str, ast.stmt] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imported.update({alias.asname or alias.name: (node.module, alias.name) for alias in node.names})
            elif isinstance(node, _DEFINITIONS):
                self.defined.update(dict.fromkeys(_names(node), node))

    def code(self, node: ast.stmt) -> str:
        """The lines of a definition, decorators included."""
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    def idiom(self, expression: str, verdict: str = "") -> Idiom:
        """The idiom that an argument of `catches` names: code of this file, else of the guards and instruments that it imports."""
        name = expression.partition("(")[0].partition(".")[0]
        if name in self.defined:
            return Idiom(expression, self.code(self.defined[name]), "", verdict)
        module, original = self.imported.get(name, ("", ""))
        found = _library(module).get(original)
        return Idiom(expression, found[1] if found else "", found[0] if found else module, verdict)

    def guards(self, node: ast.FunctionDef) -> frozenset[str]:
        """The guards that a case goes through: named in it, in its right idiom, or in a definition of its file that these name."""
        wrong = {id(each) for call in node.decorator_list if isinstance(call, ast.Call) for arg in call.args for each in ast.walk(arg)}
        waiting, seen = [node], set()
        found: set[str] = set()
        while waiting:
            current = waiting.pop()
            for each in ast.walk(current):
                if isinstance(each, ast.Name) and id(each) not in wrong and each.id not in seen:
                    seen.add(each.id)
                    module, original = self.imported.get(each.id, ("", ""))
                    if module == "conformance.guards" or module.startswith("conformance.guards."):
                        found.add(original)
                    elif each.id in self.defined:
                        waiting.append(self.defined[each.id])  # type: ignore[arg-type]
        return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@cache
def _library(module: str) -> Mapping[str, tuple[str, str]]:
    """Name -> file and code of what a module of this package, or the modules of a package of it, define."""
    parts = module.split(".")
    if parts[0] != "conformance" or len(parts) < 2:
        return {}
    path = _PACKAGE.joinpath(*parts[1:])
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    found: dict[str, tuple[str, str]] = {}
    for file in files:
        if file.is_file():
            held = _Module(file.read_text(encoding="utf-8"))
            place = file.relative_to(_PACKAGE.parent).as_posix()
            found.update({name: (place, held.code(node)) for name, node in held.defined.items()})
    return found
