"""A single-file reproduction: a case with all that it needs of ours, as a script for plain Python and torch."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from conformance import __version__
from conformance.casemarks import Marks, chosen, marks_of
from conformance.globalnames import Definition, NotSliceableError, Outside, Source, source
from conformance.incell import features
from conformance.slicing import Slice

_PACKAGE = Path(__file__).parent
_TEMPLATES = _PACKAGE / "templates"
_INCELL, _SUBJECTS = _PACKAGE / "incell", _PACKAGE / "subjects"
SCHEMA = 1


@dataclass(frozen=True)
class Neighbour:
    """One side of a difference: the release, what it came to in one word, what it was measured with, how it is run.

    Without a release it is what the case asks for.
    """

    release: str
    value: str
    evidence: str
    command: str

    @property
    def who(self) -> str:
        """Whose answer it is, after `as`."""
        return f"torch {self.release}" if self.release else "it should be"


def neighbour(version: str, value: str, evidence: str, *, python: str, packages: Sequence[str], file: str, index: str = "") -> Neighbour:
    """The side of a release, with the command that runs the script `file` on it. `index`: where its builds are, if not on PyPI."""
    needs = " ".join(f"--with '{package}'" for package in (f"torch=={version}", *packages))
    more = f" --index {index} --prerelease allow" if index else ""
    return Neighbour(version, value, evidence, f"uv run --no-project --python {python}{more} {needs} {file}")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The case to reproduce. `params` are its parameters as its records give them, `reference` names a subject of the user's."""

    case: str
    file: Path
    params: dict[str, str]
    device: str
    observation: str
    before: Neighbour
    after: Neighbour
    reference: str = ""


def script(wanted: Wanted) -> str:
    """The text of the script. Raises NotSliceableError for a case that cannot stand on its own."""
    of = source(wanted.file)
    function = _function(of, wanted.case)
    gathered = Slice()
    gathered.add(Definition(_INCELL / "observations.py", "_described"), "described")
    gathered.add(Definition(_INCELL / "torchstate.py", "seed_all"), "seed_all")
    gathered.add(Outside("torch"), "torch")
    marks = marks_of(of, function)
    lacking = [_lack(gathered, need, wanted.device) for need in marks.needs]
    arguments = [f"{name}={text}" for name, text in _arguments(gathered, of, function, marks, wanted)]
    fixtures = list(_fixtures(of))
    for node in (*fixtures, function):
        gathered.need(of, _undecorated(node))
    own = [gathered.text(of, _undecorated(node), bare=True) for node in (*fixtures, function)]
    return _assembled(gathered, of, wanted, own, lacking, _call(function.name, arguments, fixtures, wanted.device))


def _function(of: Source, case: str) -> ast.FunctionDef:
    name = "test_" + case.partition("[")[0].partition(".")[2]
    found = of.statements.get(name)
    if not isinstance(found, ast.FunctionDef):
        raise NotSliceableError(f"{of.path.name} has no function {name} at its top")
    return found


def _undecorated(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function without its marks, which nothing reads here."""
    bare = copy.copy(function)
    bare.decorator_list = []
    return bare


def _fixtures(of: Source) -> Iterator[ast.FunctionDef]:
    """The functions that pytest would run around each case of the file."""
    for node in of.tree.body:
        if isinstance(node, ast.FunctionDef) and any("fixture(autouse=True)" in ast.unparse(each) for each in node.decorator_list):
            yield node


def _arguments(gathered: Slice, of: Source, function: ast.FunctionDef, marks: Marks, wanted: Wanted) -> Iterator[tuple[str, str]]:
    """What the case is called with, argument by argument."""
    given = {name: gathered.expression(where, value) for name, (where, value) in marks.idioms.items()}
    for names, where, rows in marks.parameters:
        row = chosen(names, where, rows, wanted.params)
        if row is None:
            given.update(_picked(gathered, where, rows, names, wanted.params))
        else:
            given.update({name: gathered.expression(holder, value) for name, (holder, value) in row.items()})
    dtype = wanted.params.get("dtype", "float32")
    own = {"device": f"torch.device({wanted.device!r})", "dtype": f"torch.{dtype}", "observe": "observe", "stage": "stage"}
    own.update({"depth": "'default'", "tmp_path": "pathlib.Path(tempfile.mkdtemp())"})
    for each in (*function.args.args, *function.args.kwonlyargs):
        if each.arg == "subject" and "subject" not in given:
            yield each.arg, _subject(gathered, wanted)
        elif each.arg in given or each.arg in own:
            yield each.arg, given.get(each.arg) or own[each.arg]
        elif each.arg in wanted.params and isinstance(each.annotation, ast.Name) and each.annotation.id == "str":
            yield each.arg, repr(wanted.params[each.arg])  # from rows that the file makes while it is collected
        else:
            raise NotSliceableError(f"the fixture {each.arg} is not known")


def _picked(gathered: Slice, of: Source, rows: ast.expr, names: Sequence[str], params: dict[str, str]) -> dict[str, str]:
    """Parameters that the script itself looks up, in rows that only running the file gives.

    Raises NotSliceableError where the record, of an older file of cases perhaps, has not all of them.
    """
    if not params.keys() >= set(names):
        raise NotSliceableError(f"the record has not the parameters {', '.join(names)}")
    identity = Definition(_INCELL / "identity.py", "_readable")
    gathered.add(identity, "readable")
    texts = {name: params[name] for name in names}
    found = f"next(row for row in {gathered.expression(of, rows)} if {_fits(names, texts, gathered.names[identity])})"
    return {name: f"{found}[{number}]" if len(names) > 1 else found for number, name in enumerate(names)}


def _fits(names: Sequence[str], texts: dict[str, str], readable: str) -> str:
    if len(names) == 1:
        return f"{readable}(row) == {texts[names[0]]!r}"
    return f"[{readable}(each) for each in row] == {[texts[name] for name in names]!r}"


def _subject(gathered: Slice, wanted: Wanted) -> str:
    """The subject: a built-in one comes along, a user's is imported from where it is."""
    alias = wanted.params["subject"]
    if wanted.reference:
        gathered.add(Definition(_SUBJECTS / "references.py", "load"), "load")
        return f"{gathered.names[Definition(_SUBJECTS / 'references.py', 'load')]}({alias!r}, {wanted.reference!r})"
    gathered.add(Definition(_SUBJECTS / f"{alias}.py", "SUBJECT"), "SUBJECT")
    return gathered.names[Definition(_SUBJECTS / f"{alias}.py", "SUBJECT")]


def _lack(gathered: Slice, need: str, device: str) -> str:
    """The expression that tells why a need is not met, as incell/features.py does; empty text where it is."""
    file, kind, arguments = _INCELL / "features.py", "", repr(need)
    if need in ("compile", "export"):
        kind, arguments = f"_lacks_{need}", ""
    elif need.startswith("torch."):
        kind = "_lacks_attribute"
    elif need in features.DTYPES:
        kind, arguments = "_lacks_dtype", f"{need!r}, {device!r}"
    else:
        kind = "_lacks_package"
    gathered.add(Definition(file, kind), kind)
    return f"{gathered.names[Definition(file, kind)]}({arguments})"


def _call(name: str, arguments: Sequence[str], fixtures: Sequence[ast.FunctionDef], device: str) -> list[str]:
    """The lines that run the case: fixtures around it, everything seeded first."""
    lines = [f"seed_all(0, {device!r})"]
    call = f"{name}({', '.join(arguments)})"
    if not fixtures:
        return [*lines, call]
    lines.append("with contextlib.ExitStack() as around:")
    for fixture in fixtures:
        yields = any(isinstance(node, ast.Yield) for node in ast.walk(fixture))
        around = f"around.enter_context(contextlib.contextmanager({fixture.name})())" if yields else f"{fixture.name}()"
        lines.append(f"    {around}")
    return [*lines, f"    {call}"]


def _assembled(gathered: Slice, of: Source, wanted: Wanted, own: Sequence[str], lacking: Sequence[str], call: Sequence[str]) -> str:
    """The parts in the order in which they must stand."""
    imports = [line for line in gathered.imports() if line.split()[1] != "pytest"]
    needs_pytest = len(imports) < len(gathered.imports())
    parts = [_after_imports("little_pytest.py", "class ") if needs_pytest else "class SkippedError(Exception):\n    pass"]
    for path, texts in gathered.sections(of.path):
        parts += [f"# ---- {_label(path)}", *texts]
    parts += [*own, "def lacking() -> str:\n    return " + (" or ".join(lacking) or '""')]
    parts += ["def case() -> None:\n" + "\n".join(f"    {line}" for line in call)]
    parts += [_constants(wanted), _after_imports("reproduction.py", "def observe(")]
    body = "\n\n\n".join(part.strip("\n") for part in parts)
    lines = sorted({*imports, *_own_imports(body)}, key=lambda line: (line.startswith("from"), line))
    return f'"""{_head(of, wanted)}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(lines) + f"\n\n\n{body}\n"


def _own_imports(body: str) -> list[str]:
    """What the parts that are not taken from anywhere import, as far as it is used."""
    modules = ("contextlib", "importlib", "pathlib", "re", "sys", "tempfile", "traceback")
    return ["from typing import Any", *(f"import {name}" for name in modules if re.search(rf"\b{name}\.", body))]


def _after_imports(template: str, start: str) -> str:
    """The text of a template from the first definition that is used."""
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    return text[text.index(f"\n{start}") :]


def _constants(wanted: Wanted) -> str:
    before, after = ((each.who, each.value) for each in (wanted.before, wanted.after))
    return f"OBSERVATION = {wanted.observation!r}\nBEFORE, AFTER = {before!r}, {after!r}\nOBSERVED: dict[str, Any] = {{}}"


def _label(path: Path) -> str:
    for root in (_PACKAGE.parent, *path.parents[2:3]):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


def _about(wanted: Wanted) -> str:
    """The first line: what differs, and where."""
    what = f"observation {wanted.observation!r}" if wanted.observation else "verdict"
    if not wanted.before.release:
        return f"{wanted.case}: its {what} is {wanted.after.value} on torch {wanted.after.release}."
    older, newer = sorted((wanted.before.release, wanted.after.release), key=Version)
    return f"{wanted.case}: its {what} changes between torch {older} and {newer}."


def _head(of: Source, wanted: Wanted) -> str:
    """What the script is about, what was measured, how it is run."""
    title = (ast.get_docstring(_function(of, wanted.case)) or wanted.case).replace('"""', "'''").replace("\\", "\\\\")
    sides = [each for each in (wanted.before, wanted.after) if each.release]
    rows = [f"  torch {each.release}: {each.value}  ({each.evidence})" for each in sides]
    runs = [f"  {each.command}" for each in sides]
    return "\n".join(
        [
            _about(wanted),
            "",
            title,
            "",
            "Measured:",
            *rows,
            "",
            "Run it with plain Python and torch, for example:",
            *runs,
            "",
            f"It ends with 0 where the answer is as {wanted.before.who}, with 1 as {wanted.after.who}, with 2 as neither.",
            f"Written by torch-conformance {__version__}, schema {SCHEMA}, from {_label(of.path)}; nothing of it is needed to run this.",
            "",
        ]
    )
