"""Where each guard is needed and where it is dead: by the cases that run with it, and by those that do without it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from packaging.version import Version

from conformance import tomlfiles
from conformance.artifacts import Record
from conformance.columns import Group
from conformance.compare import between, measured
from conformance.config import builtin_cases
from conformance.errors import ConfigError
from conformance.incell.verdicts import Stage, Verdict, worst
from conformance.selectors import matches

_GUARDS = Path(__file__).parent / "guards"


@dataclass(frozen=True)
class Way:
    """One way to do without a guard, and the cases, by id or glob, that run it."""

    guard: str
    way: str
    cases: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """One way in one group of columns: release -> the worst of its cases, None where nothing was measured.

    What is not there (`unsupported`) is no way to do without the guard: it counts as a need.
    """

    way: Way
    group: Group
    verdicts: Mapping[Version, Verdict | None]

    @property
    def measured(self) -> list[Version]:
        """The releases that say something, oldest first."""
        return measured(self.verdicts)

    @property
    def needed(self) -> list[Version]:
        """The releases where doing without the guard does not pass, oldest first."""
        return [version for version in self.measured if self.verdicts[version] is not Verdict.PASS]

    @property
    def droppable(self) -> Version | None:
        """The oldest measured release from which on the guard is not needed; None where the newest needs it or nothing was measured."""
        needed = self.needed
        after = [version for version in self.measured if not needed or version > needed[-1]]
        return after[0] if after else None

    @property
    def sentence(self) -> str:
        """The answer, as `needed on 2.0 to 2.3 (unsupported), 2.4 to 2.6 (wrong); droppable once the floor is 2.7`."""
        if not self.measured:
            return "not measured"
        ran = {column.version: self.verdicts.get(column.version) for column in self.group.columns}
        gaps = f"; nothing from {len(between(ran))} between" if between(ran) else ""
        if not self.needed:
            return f"not needed on any release measured ({_span(self.measured)}{gaps})"
        runs = groupby(self.measured, key=lambda version: self.verdicts[version])
        told = [f"{_span(list(versions))} ({verdict})" for verdict, versions in runs if verdict is not Verdict.PASS]
        floor = self.droppable
        end = f"droppable once the floor is {minor(floor)}" if floor else "not droppable yet"
        return f"needed on {', '.join(told)}{gaps}; {end}"


def ways(path: Path | None = None) -> list[Way]:
    """The ways to do without each guard, from cases/guards.toml. Raises ConfigError for a file that does not hold them."""
    path = path or builtin_cases() / "guards.toml"
    listed = tomlfiles.read(path).get("without")
    return [_way(entry, f"{path}: entry {number}") for number, entry in enumerate(listed if isinstance(listed, list) else [], 1)]


def _way(entry: Any, where: str) -> Way:
    guard, way, cases = (entry.get(name) if isinstance(entry, dict) else None for name in ("guard", "way", "cases"))
    texts = isinstance(guard, str) and isinstance(way, str) and isinstance(cases, list) and all(isinstance(case, str) for case in cases)
    if not texts or not cases:
        raise ConfigError(f"{where}: write guard and way as texts, and cases as a list of them")
    return Way(str(guard), str(way), tuple(cases))


def needs(groups: Sequence[Group], known: Sequence[Way], guard: str) -> list[Need]:
    """For each way to do without a guard and each group of columns where its cases were run, where the guard is needed."""
    found = []
    for group in groups:
        names = {case for column in group.columns for case in column.outcomes}
        for way in known:
            ran = [case for case in sorted(names) if any(matches(pattern, case) for pattern in way.cases)] if way.guard == guard else []
            ran = [case for case in ran if not all(_refused(column.outcomes[case]) for column in group.columns if case in column.outcomes)]
            if ran:
                found.append(Need(way, group, _rolled_up([group.verdicts(case) for case in ran])))
    return sorted(found, key=lambda need: known.index(need.way))


def _refused(record: Record) -> bool:
    """Whether the device cannot run the case at all, as one that holds no values: that says nothing about the guard."""
    return bool(record["verdict"] == Verdict.UNSUPPORTED.value and record["stage"] == Stage.COLLECT.value)


def _rolled_up(by_case: Iterable[Mapping[Version, Verdict | None]]) -> dict[Version, Verdict | None]:
    """Release -> the worst that is not a pass, or a pass when all are; None where a case is not known, unless another fails.

    A case without a record says nothing: not every release has each variant.
    """
    seen: dict[Version, list[Verdict | None]] = defaultdict(list)
    for verdicts in by_case:
        for version, verdict in verdicts.items():
            if verdict is not None:
                seen[version].append(verdict if measured({version: verdict}) else None)
    return {version: _together(verdicts) for version, verdicts in sorted(seen.items())}


def _together(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    failing = worst(verdict for verdict in verdicts if verdict not in (None, Verdict.PASS))
    if failing is not None:
        return failing
    return None if None in verdicts else Verdict.PASS


def guards() -> dict[str, str]:
    """Every guard that the project offers -> what it does in a line, by name; read from source, nothing is imported.

    That is the first line of its docstring, or for a guard that is a value the first line of the `#:` comment above it.
    """
    found = {}
    for path in sorted(_GUARDS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = (ast.get_docstring(node) or "").partition("\n")[0]
            elif isinstance(node, ast.AnnAssign):
                found[ast.unparse(node.target)] = _comment_above(text.splitlines(), node.lineno - 1)
    return {name: found.get(name, "") for name in sorted(_offered())}


def _comment_above(lines: Sequence[str], number: int) -> str:
    first = number
    while first and lines[first - 1].startswith("#:"):
        first -= 1
    return lines[first].removeprefix("#:").strip() if first < number else ""


def _offered() -> list[str]:
    for node in ast.parse((_GUARDS / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _span(versions: Sequence[Version]) -> str:
    first, last = minor(versions[0]), minor(versions[-1])
    return first if first == last else f"{first} to {last}"


def minor(version: Version) -> str:
    """A release by its minor, as one states a floor; a pre-release by all of it."""
    return str(version) if version.is_prerelease else f"{version.major}.{version.minor}"
