"""Which torch APIs a project touches that are newer than a release, by its source and as recorded, with the guard that fills the gap."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from conformance.artifacts import Record
from conformance.incell.newerapis import DATA
from conformance.incell.verdicts import Verdict
from conformance.results import CellResult

_OTHERS = "(?)"

#: What fills the gap where an API is missing, by the API's name.
GUARDS = {
    "torch.nn.functional.rms_norm": "rms_norm",
    "torch.nn.RMSNorm": "rms_norm",
    "torch.nn.functional.scaled_dot_product_attention": "sdpa",
    "torch.compiler.is_compiling": "is_compiling",
    "torch.nn.Module.load_state_dict(assign)": "materialise",
    "torch.amp.autocast": "autocast",
    "torch.amp.GradScaler": "grad_scaler",
    "torch.serialization.add_safe_globals": "load_checkpoint",
}
#: Keywords of functions that tell none, as the release notes and observation have them.
_BUILTIN_KEYWORDS = {
    "torch.nn.functional.scaled_dot_product_attention(scale)": "2.1.2",
    "torch.nn.functional.scaled_dot_product_attention(enable_gqa)": "2.5.1",
}


@dataclass(frozen=True)
class Touch:
    """One use of an API: its name, the first measured release that has it, and where it is used first."""

    name: str
    since: str
    file: Path
    line: int
    source: str
    #: The releases on which it was called, as recorded; empty where it is known from the source alone.
    called_on: tuple[str, ...] = ()

    @property
    def guard(self) -> str:
        """The guard of ours for it, empty where there is none."""
        return GUARDS.get(self.name, "")


@dataclass
class Reading:
    """What was read of a source: the APIs that it touches, and the files that could not be read, each with the reason."""

    touches: list[Touch]
    unread: dict[Path, str]

    def with_recorded(self, recorded: Iterable[Touch]) -> Reading:
        """What was read or recorded, each API once: with its line in the source, where both ways know it."""
        found = {touch.name: touch for touch in self.touches}
        for each in recorded:
            found[each.name] = replace(found.get(each.name, each), called_on=each.called_on)
        return Reading(_in_order(found), self.unread)


Table = dict[str, list[str]]


def stored() -> Table:
    """The table that ships with the tool."""
    table: Table = json.loads(DATA.read_text(encoding="utf-8"))
    return table


@functools.cache
def first_releases() -> dict[str, str]:
    """Name, or `name(keyword)`, -> the first measured release that has it, for all that the oldest one has not.

    A keyword of a function that once took keywords which its signature did not tell may be older than it looks, and is left out.
    """
    (_, oldest), *newer = sorted(stored().items(), key=lambda item: Version(item[0]))
    first = {name: release for release, names in newer for name in names}
    untold = {**dict.fromkeys((name for name in oldest if name.endswith(_OTHERS)), "0"), **first}
    known = {name: release for name, release in first.items() if Version(untold.get(_others(name), release)) >= Version(release)}
    return {**{name: release for name, release in known.items() if not name.endswith(_OTHERS)}, **_BUILTIN_KEYWORDS}


def _others(name: str) -> str:
    """`f(?)` for `f(keyword)`."""
    return name.partition("(")[0] + _OTHERS


def merged(table: Table, release: str, names: Iterable[str]) -> Table:
    """The table with one more release, whose public names are those (conformance.incell.publicnames); each name stays in its first one."""
    first = {name: known for known, listed in table.items() for name in listed}
    for name in names:
        if name not in first or Version(release) < Version(first[name]):
            first[name] = release
    listed: Table = {known: [] for known in sorted({*table, release}, key=Version)}
    for name in sorted(first):
        listed[first[name]].append(name)
    return listed


def write(names: Iterable[tuple[str, list[str]]]) -> None:
    """Bring the table that ships up to date with the names of those releases."""
    table = stored() if DATA.is_file() else {}
    for release, listed in names:
        table = merged(table, release, listed)
    DATA.write_text(json.dumps(table, indent=0) + "\n", encoding="utf-8")


def lines(read: Reading, project: Path, lowest: str) -> list[str]:
    """What was found, for a terminal."""
    told = []
    for touch in read.touches:
        called = f", called on {', '.join(touch.called_on)}" if touch.called_on else ""
        told += [f"{touch.name}: since {touch.since}{called}", f"    {_place(touch.file, project)}:{touch.line}: {touch.source}"]
        told += [f"    where it is missing: conformance.guards.{touch.guard}"] if touch.guard else []
    told = told or [f"nothing that is newer than torch {lowest}"]
    return told + [f"not read: {_place(path, project)}: {why}" for path, why in read.unread.items()]


def _place(path: Path, project: Path) -> Path:
    return path.relative_to(project) if path.is_relative_to(project) else path


def touched(files: Iterable[Path], lowest: str) -> Reading:
    """The uses, in those files, of APIs that are newer than the release `lowest`, one for each API, in order of first release."""
    known = first_releases()
    found: dict[str, Touch] = {}
    unread: dict[Path, str] = {}
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except SyntaxError as error:
            unread[path] = f"{error.msg}, line {error.lineno}"
            continue
        except (OSError, ValueError) as error:
            unread[path] = str(error)
            continue
        for name, line, source in _uses(text, tree):
            if is_newer(name, lowest):
                found.setdefault(name, Touch(name, known[name], path, line, source))
    return Reading(_in_order(found), unread)


def is_newer(name: str, lowest: str) -> bool:
    """Whether an API, or a keyword of one, came after the release `lowest`. A keyword that came with its function is none of its own."""
    known = first_releases()
    since = known.get(name)
    return since is not None and Version(since) > Version(lowest) and ("(" not in name or known.get(name.partition("(")[0]) != since)


def _in_order(found: Mapping[str, Touch]) -> list[Touch]:
    return sorted(found.values(), key=lambda touch: (Version(touch.since), touch.name))


#: The check that records, and how it tells the first line that touches an API.
RECORDING = "fallbacks.subject_touches"
_SITE = re.compile(r"(?P<file>.+?):(?P<line>\d+): (?P<source>.*)", re.DOTALL)


def recordings(cells: Iterable[CellResult], alias: str) -> dict[Version, Record]:
    """The records that came to tell what the subject `alias` calls, one for each release."""
    found = {cell.cell.version: cell.outcomes().get(f"{RECORDING}[{alias}]") for cell in cells}
    return {version: record for version, record in found.items() if record is not None and _tells(record)}


def _tells(record: Record) -> bool:
    return bool(record["observations"]) or record["verdict"] == Verdict.PASS.value


def recorded(records: Mapping[Version, Record], lowest: str) -> list[Touch]:
    """The APIs newer than `lowest` that were called on those releases, each with the line of the newest release that tells."""
    found: dict[str, Touch] = {}
    for version in sorted(records):
        for name, observed in (records[version]["observations"] or {}).items():
            site = _SITE.match(str(observed.get("value", "")))
            if site and is_newer(name, lowest):
                before = found[name].called_on if name in found else ()
                file, since = Path(site["file"].removeprefix("<project>/")), first_releases()[name]
                found[name] = Touch(name, since, file, int(site["line"]), site["source"], (*before, str(version)))
    return _in_order(found)


def _uses(text: str, tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Every dotted name below torch that the source reads, and `name(keyword)` for each keyword of a call, with its line."""
    lines, imported = text.splitlines(), dict(_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            callee = _dotted(node.func, imported)
            names = [f"{callee}({keyword.arg})" for keyword in node.keywords if keyword.arg] if callee else []
            names += _method_keywords(node)
        else:
            dotted = _dotted(node, imported)
            names = [dotted] if dotted else []
        for name in names:
            yield name, node.lineno, lines[node.lineno - 1].strip()  # type: ignore[attr-defined]


def _method_keywords(node: ast.Call) -> list[str]:
    """Keywords of methods that any module has: `model.load_state_dict(..., assign=True)`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("load_state_dict", "to_empty", "compile", "register_buffer"):
        return []
    return [f"torch.nn.Module.{node.func.attr}({keyword.arg})" for keyword in node.keywords if keyword.arg]


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Local name -> dotted name, for what is imported from torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    yield (alias.asname, alias.name) if alias.asname else ("torch", "torch")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "torch":
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.AST, imported: Mapping[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imported:
        return ""
    return ".".join([imported[node.id], *reversed(parts)])
