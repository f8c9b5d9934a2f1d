"""What a case's marks say, read from source: what it requires, its right idiom, and the values of its parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from conformance.globalnames import Definition, NotSliceableError, Source, references, source


@dataclass
class Marks:
    """Of one case: its needs, its idiom (argument and expression), its sets of parameters, each with the file that holds it."""

    needs: list[str] = field(default_factory=list)
    idioms: dict[str, tuple[Source, ast.expr]] = field(default_factory=dict)
    parameters: list[tuple[tuple[str, ...], Source, ast.expr]] = field(default_factory=list)


def marks_of(of: Source, function: ast.FunctionDef) -> Marks:
    """The marks of a case, those of its module included."""
    found = Marks()
    named = of.statements.get("pytestmark")
    everywhere = [named.value] if isinstance(named, ast.Assign) else []
    for expression in (*function.decorator_list, *everywhere):
        for where, call in _calls(of, expression):
            _note(found, where, call)
    return found


def _calls(of: Source, expression: ast.expr) -> Iterator[tuple[Source, ast.Call]]:
    """The calls that a mark is made by: itself, those of a list, or the one behind a name."""
    if isinstance(expression, ast.Call):
        yield of, expression
    elif isinstance(expression, (ast.List, ast.Tuple)):
        for each in expression.elts:
            yield from _calls(of, each)
    elif isinstance(expression, ast.Name) and expression.id in (*of.statements, *of.imported) and not _is_mark(of, expression.id):
        where, value = value_of(of, expression)
        yield from _calls(where, value)


def _is_mark(of: Source, name: str) -> bool:
    """Whether a name is one of our own marks without arguments, as `values`."""
    found = of.imported.get(name)
    return isinstance(found, Definition) and found.path.parent.name == "incell"


def _note(found: Marks, of: Source, call: ast.Call) -> None:
    kind = ast.unparse(call.func).rpartition(".")[2]
    if kind == "requires":
        found.needs += [text for need in call.args for text in _texts(of, need)]
    elif kind == "catches":
        found.idioms.update({str(keyword.arg): (of, keyword.value) for keyword in call.keywords})
    elif kind == "parametrize":
        names = ast.literal_eval(call.args[0])
        listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        found.parameters.append((tuple(listed), of, call.args[1]))


def _texts(of: Source, need: ast.expr) -> list[str]:
    """What one argument of `requires` names: a text, or with a star before it the texts of a constant (`*opinfo.REQUIREMENTS`)."""
    value = value_of(of, need.value)[1] if isinstance(need, ast.Starred) else need
    try:
        found = ast.literal_eval(value)
    except ValueError:
        raise NotSliceableError(f"what it requires is not written down: {ast.unparse(need)}") from None
    return [found] if isinstance(found, str) else list(found)


def value_of(of: Source, expression: ast.expr) -> tuple[Source, ast.expr]:
    """The expression that a name, or a name of a module of ours, stands for, with the file that holds it; any other is itself."""
    while isinstance(expression, (ast.Name, ast.Attribute)):
        target = next((each.target for each in references(of, expression) if each.node is expression), None)
        statement = source(target.path).statements[target.name] if isinstance(target, Definition) else None
        if not isinstance(target, Definition) or not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            break
        of, expression = source(target.path), statement.value
    return of, expression


def chosen(names: Sequence[str], of: Source, rows: ast.expr, params: dict[str, str]) -> dict[str, tuple[Source, ast.expr]] | None:
    """The expression of each parameter in the one row whose values read as `params` do; None where the rows cannot be told from source.

    Raises NotSliceableError where several rows read so.
    """
    fitting = []
    for where, row in _rows(of, rows):
        parts = list(row.elts) if len(names) > 1 and isinstance(row, (ast.Tuple, ast.List)) else [row]
        if len(parts) == len(names) and all(_reads(where, part, params.get(name)) for name, part in zip(names, parts)):
            fitting.append(dict(zip(names, ((where, part) for part in parts))))
    if len(fitting) > 1:
        raise NotSliceableError(f"{len(fitting)} rows of parameters read as {', '.join(f'{name}={params.get(name)}' for name in names)}")
    return fitting[0] if fitting else None


def _rows(of: Source, rows: ast.expr) -> Iterator[tuple[Source, ast.expr]]:
    """The rows of a set of parameters, as far as source tells them: of a list, the keys of a table, what a star unpacks."""
    where, listed = value_of(of, rows)
    if isinstance(listed, (ast.List, ast.Tuple, ast.Set)):
        for each in listed.elts:
            if isinstance(each, ast.Starred):
                yield from _rows(where, each.value)
            else:
                yield where, each
    elif isinstance(listed, ast.Dict):
        for key, value in zip(listed.keys, listed.values):
            if key is None:
                yield from _rows(where, value)
            else:
                yield where, key
    elif isinstance(listed, ast.Call) and ast.unparse(listed.func) in ("list", "tuple", "sorted") and len(listed.args) == 1:
        yield from _rows(where, listed.args[0])


def _reads(of: Source, node: ast.expr, text: str | None) -> bool:
    """Whether a value would be written as `text` in a record (incell/identity.py)."""
    try:
        return text == str(ast.literal_eval(node))[:200].replace("torch.", "")
    except ValueError:
        pass
    where, value = value_of(of, node)
    if value is not node:
        return _reads(where, value, text)
    target = of.target(node.id) if isinstance(node, ast.Name) else None
    written = target.name if isinstance(target, Definition) else ast.unparse(node).replace("torch.", "")
    special = re.fullmatch(r"float\('(.+)'\)", written)
    return text in (written, written.rpartition(".")[2], special[1] if special else written)
