"""What a project's own files claim of torch and Python: each specifier with the place that says so. Nothing is installed or run."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.errors import ConfigError
from conformance.tomlfiles import pyproject


@dataclass(frozen=True)
class Claim:
    """One requirement as its file writes it, the releases it claims (an empty specifier claims all), and where it stands."""

    text: str
    specifier: SpecifierSet
    where: str

    def claims(self, release: str) -> bool:
        """Whether that release is in the claimed range."""
        return self.specifier.contains(release, prereleases=True)

    def __str__(self) -> str:
        return f"{self.text!r} in {self.where}"


def torch_claims(project: Path) -> list[Claim]:
    """What the project in that folder claims of torch, in the order of its files; empty where it names no torch.

    Read are `[project]` dependencies and extras, setuptools' dynamic files, Poetry's tables and setup.cfg. Development groups claim
    nothing of users. Raises ConfigError for a pyproject.toml that is no TOML.
    """
    table = pyproject(project)
    found = [*_declared(table), *_dynamic(project, table), *_setup_cfg(project)]
    claims = [_claim(text, where) for text, where in found]
    return [claim for claim in (*claims, *_poetry(table)) if claim is not None]


def python_claim(project: Path) -> Claim | None:
    """The range of Pythons that the project claims by requires-python; None where it claims none."""
    text = _table(pyproject(project), "project").get("requires-python")
    if not isinstance(text, str):
        return None
    try:
        return Claim(text, SpecifierSet(text), "pyproject.toml requires-python")
    except InvalidSpecifier as error:
        raise ConfigError(f"{project / 'pyproject.toml'}: requires-python {text!r} is no version specifier, as '>=3.10'") from error


def classifiers(project: Path) -> list[str]:
    """The trove classifiers of the project, as it lists them."""
    return _texts(_table(pyproject(project), "project").get("classifiers"))


def _declared(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Requirements of `[project]`, each with its place."""
    project = _table(table, "project")
    for text in _texts(project.get("dependencies")):
        yield text, "pyproject.toml [project] dependencies"
    for extra, texts in _table(project, "optional-dependencies").items():
        for text in _texts(texts):
            yield text, f"pyproject.toml [project.optional-dependencies] {extra}"


def _dynamic(project: Path, table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Requirements in the files that setuptools reads `dependencies` from."""
    dynamic = _table(_table(_table(table, "tool"), "setuptools"), "dynamic").get("dependencies")
    files = dynamic.get("file", []) if isinstance(dynamic, dict) else []
    for name in [files] if isinstance(files, str) else _texts(files):
        path = project / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            yield line.partition("#")[0].strip(), f"{name}:{number}"


def _setup_cfg(project: Path) -> Iterator[tuple[str, str]]:
    """Requirements of setup.cfg's `install_requires`."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(project / "setup.cfg", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{project / 'setup.cfg'}: cannot be read: {str(error).splitlines()[0]}") from error
    for line in parser.get("options", "install_requires", fallback="").splitlines():
        yield line.partition("#")[0].strip(), "setup.cfg [options] install_requires"


def _poetry(table: dict[str, Any]) -> Iterator[Claim]:
    """Poetry's own table, whose caret and tilde mean ranges."""
    listed = _table(_table(_table(table, "tool"), "poetry"), "dependencies").get("torch")
    entries = listed if isinstance(listed, list) else [listed]
    for entry in entries:
        text = entry.get("version") if isinstance(entry, dict) else entry
        if isinstance(text, str):
            yield Claim(text, _poetry_range(text), "pyproject.toml [tool.poetry.dependencies] torch")


def _poetry_range(text: str) -> SpecifierSet:
    """`^2.1` as `>=2.1,<3`, `~2.1` as `>=2.1,<2.2`, `*` as everything, a bare version as itself."""
    parts = [_poetry_part(part.strip()) for part in text.split(",")]
    try:
        return SpecifierSet(",".join(part for part in parts if part))
    except InvalidSpecifier as error:
        raise ConfigError(f"pyproject.toml [tool.poetry.dependencies]: torch {text!r} is no version constraint") from error


def _poetry_part(part: str) -> str:
    match = re.fullmatch(r"([\^~])\s*(\d+)(?:\.(\d+))?([\d.]*)", part)
    if match is None:
        return f"=={part}" if re.match(r"\d", part) else part.removesuffix("*") if part == "*" else part
    sign, major, minor, rest = match.groups()
    next_ = f"{major}.{int(minor) + 1}" if sign == "~" and minor is not None else f"{int(major) + 1}"
    return f">={major}{f'.{minor}' if minor is not None else ''}{rest},<{next_}"


def _claim(text: str, where: str) -> Claim | None:
    """The claim that a requirement makes of torch; None for other packages, and for lines that are no requirement."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return Claim(text, requirement.specifier, where) if requirement.name.lower() == "torch" else None


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, Iterable) and not isinstance(values, str) else []
