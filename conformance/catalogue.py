"""The catalogue: what each case asks, where that is known from, and which wrong twins it catches. Nothing runs to tell it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.errors import ConfigError
from conformance.incell.verdicts import Verdict

if TYPE_CHECKING:
    from conformance.plan import CaseFile

#: Ends what is written by hand in a family's page; the table of its cases follows.
MARKER = "<!-- cases -->"
_HEAD = ("| case | what holds | known from, since and until | wrong twins |", "|---|---|---|---|")


@dataclass(frozen=True)
class Entry:
    """One case function. `twins` are the names of its mistakes, each with the verdict that it must get."""

    name: str
    title: str
    source: str
    twins: tuple[tuple[str, str], ...]


def entries(files: Iterable[CaseFile]) -> list[Entry]:
    """The cases of `files`, in the order of the files and of their lines."""
    return [entry for file in files for entry in _of_file(file)]


def lines(found: Iterable[Entry]) -> list[str]:
    """The catalogue for a terminal."""
    listed = []
    for entry in found:
        listed += [entry.name, f"    {entry.title}", f"    {entry.source}"]
        if entry.twins:
            listed.append(f"    catches {_twins(entry)}")
    return listed


def page(text: str, found: list[Entry]) -> str:
    """A family's page with its table of cases written anew after the marker. Raises ConfigError for a page without one."""
    by_hand, marker, _ = text.partition(MARKER)
    if not marker:
        raise ConfigError(f"the page has no line {MARKER}, after which the table of cases is written")
    rows = [f"| `{entry.name}` | {_cell(entry.title)} | {_cell(entry.source)} | {_twins(entry, '`')} |" for entry in found]
    twins = sum(len(entry.twins) for entry in found)
    count = f"{len(found)} cases catch {twins} wrong twins."
    return "\n".join([by_hand + MARKER, "", count, "", *_HEAD, *rows, ""])


def _of_file(file: CaseFile) -> Iterator[Entry]:
    body = ast.parse(file.path.read_text(encoding="utf-8")).body
    constants = dict(constants_of(body))
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            title, _, rest = (ast.get_docstring(node) or "").partition("\n")
            yield Entry(f"{file.family}.{node.name.removeprefix('test_')}", title, " ".join(rest.split()), tuple(_caught(node, constants)))


def constants_of(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The module's names for values, by which a twin's verdict may be stated."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _caught(function: ast.FunctionDef, constants: dict[str, ast.expr]) -> Iterator[tuple[str, str]]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "catches":
            for wrong in decorator.args:
                yield twins_of(wrong, constants)


def twins_of(wrong: ast.expr, constants: dict[str, ast.expr] | None = None) -> tuple[str, str]:
    """Name and stated verdict of an argument of `catches`: the idiom itself, or `Twin(idiom, verdict)`."""
    if isinstance(wrong, ast.Call) and ast.unparse(wrong.func) == "Twin":
        stated = [*wrong.args[1:], *(keyword.value for keyword in wrong.keywords)]
        if not stated:
            return ast.unparse(wrong.args[0]), Verdict.WRONG.value
        value = ast.literal_eval((constants or {}).get(ast.unparse(stated[0]), stated[0]))
        told = value if isinstance(value, str) else ", ".join(f"{param}: {verdict}" for param, verdict in value.items())
        return ast.unparse(wrong.args[0]), told
    return ast.unparse(wrong), Verdict.WRONG.value


def _twins(entry: Entry, quote: str = "") -> str:
    """The twins of a case, each with the verdict that it must get where that is not `wrong`."""
    return ", ".join(f"{quote}{name}{quote}" + ("" if verdict == Verdict.WRONG.value else f" ({verdict})") for name, verdict in entry.twins)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
