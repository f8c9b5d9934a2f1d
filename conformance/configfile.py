"""Reading the configuration: conformance/defaults.toml, and over it `[tool.conformance]` of the project's pyproject.toml."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance import tomlfiles
from conformance.config import DEPTHS, DEVICES, INDEXES, Config, Limits, Package, Release, Target
from conformance.errors import ConfigError
from conformance.incell.identity import FAMILIES

_PACKAGE = Path(__file__).parent


def load(project: Path, overrides: dict[str, Any] | None = None) -> Config:
    """The configuration of the project in that folder. All mistakes of a file come in one ConfigError."""
    project = project.resolve()
    own, source = _own_table(project)
    reader = _Reader(source)
    merged = _merged(tomlfiles.read(_PACKAGE / "defaults.toml"), own, reader)
    merged.update(overrides or {})
    config = reader.config(project, merged)
    reader.finish()
    return config


def _own_table(project: Path) -> tuple[dict[str, Any], str]:
    path = project / "pyproject.toml"
    if not path.is_file():
        return {}, "conformance/defaults.toml"
    tool = tomlfiles.read(path).get("tool", {})
    table = tool.get("conformance", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [tool.conformance] is not a table")
    return table, str(path)


def _merged(defaults: dict[str, Any], own: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    """The defaults with the project's keys laid over them; tables are merged by name, anything else is replaced."""
    merged = dict(defaults)
    for key, value in own.items():
        if key not in defaults:
            reader.wrong(key, f"unknown key{_close(key, defaults)}")
        elif isinstance(defaults[key], dict) and isinstance(value, dict):
            merged[key] = {**defaults[key], **value}
        else:
            merged[key] = value
    return merged


def _close(word: str, known: Any) -> str:
    matches = get_close_matches(word, list(known), n=1)
    return f"; perhaps you meant {matches[0]!r}" if matches else f"; known: {', '.join(map(str, known))}"


class _Reader:
    """Turns TOML values into the types of the config and keeps every mistake for one error."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.mistakes: list[str] = []

    def wrong(self, key: str, what: str) -> None:
        self.mistakes.append(f"  {key}: {what}")

    def finish(self) -> None:
        if self.mistakes:
            raise ConfigError("\n".join([f"{self.source}: [tool.conformance] is wrong:", *self.mistakes]))

    def value(self, table: dict[str, Any], key: str, kind: type, where: str = "") -> Any:
        """`table[key]` if it is of that kind; a mistake and a harmless value of the kind otherwise."""
        value = table.get(key)
        if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        self.wrong(where + key, f"must be {_kind(kind)}, is {_kind(type(value))} {value!r}")
        return kind()

    def choice(self, table: dict[str, Any], key: str, known: Any) -> str:
        value: str = self.value(table, key, str)
        if value and value not in known:
            self.wrong(key, f"{value!r} is not known{_close(value, known)}")
        return value

    def texts(self, table: dict[str, Any], key: str, where: str = "") -> tuple[str, ...]:
        values = self.value(table, key, list, where)
        if not all(isinstance(value, str) for value in values):
            self.wrong(where + key, "must be a list of texts")
            return ()
        return tuple(values)

    def choices(self, table: dict[str, Any], key: str, known: Any) -> tuple[str, ...]:
        values = self.texts(table, key)
        for value in values:
            if value not in known:
                self.wrong(key, f"{value!r} is not known{_close(value, known)}")
        return values

    def positive(self, table: dict[str, Any], key: str, kind: type, where: str) -> Any:
        value = self.value(table, key, kind, where)
        if isinstance(table.get(key), (int, float)) and not 0 < value < float("inf"):
            self.wrong(where + key, f"must be more than 0 and finite, is {value}")
        return value

    def config(self, project: Path, table: dict[str, Any]) -> Config:
        releases = self._releases(project, self.value(table, "releases", dict))
        profiles = self._profiles(self.value(table, "profiles", dict), releases)
        workers = table["workers"]
        if workers != "auto" and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 0):
            self.wrong("workers", f"must be 'auto' or a whole number from 0, is {workers!r}")
        return Config(
            project=project,
            source=self.source,
            profile=self.choice(table, "profile", profiles),
            depth=self.choice(table, "depth", DEPTHS),
            devices=self.choices(table, "devices", ("auto", *DEVICES)),
            families=self.choices(table, "families", FAMILIES),
            cases=self._paths(project, table, "cases"),
            expectations=self._paths(project, table, "expectations"),
            reports=(project / self.value(table, "reports", str)).absolute(),
            environments=(project / self.value(table, "environments", str)).absolute(),
            index=self.choice(table, "index", INDEXES),
            pytorch_index_url=self.value(table, "pytorch-index-url", str),
            python_downloads=self.value(table, "python-downloads", bool),
            seed=self.value(table, "seed", int),
            workers=workers if isinstance(workers, int) else None,
            threads=self.positive(table, "threads", int, ""),
            publish_swing=self.positive(table, "publish-swing", float, ""),
            limits=self._limits(self.value(table, "limits", dict)),
            subjects=self._subjects(self.value(table, "subjects", dict)),
            elsewhere=self._elsewhere(self.value(table, "elsewhere", dict)),
            releases=releases,
            profiles=profiles,
            targets=self._targets(self.value(table, "targets", list)),
            on_request=self.choices(table, "on-request", FAMILIES),
            packages=self._packages(self.value(table, "packages", dict)),
            newest_only=self._newest_only(self.value(table, "newest-only", dict), profiles),
        )

    def _paths(self, project: Path, table: dict[str, Any], key: str) -> tuple[Path, ...]:
        paths = tuple((project / text).absolute() for text in self.texts(table, key))
        for path in paths:
            if not path.exists():
                self.wrong(key, f"{path} does not exist")
        return paths

    def _unknown(self, table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in table:
            if key not in known:
                self.wrong(where + key, f"unknown key{_close(key, known)}")

    def _limits(self, table: dict[str, Any]) -> Limits:
        where = "limits."
        self._unknown(table, ("timeout-s", "memory-mb", "output-mb", "install-s", "free-disk-gb"), where)
        disk = table.get("free-disk-gb")
        return Limits(
            timeout_s=self.positive(table, "timeout-s", float, where),
            memory_mb=self.positive(table, "memory-mb", int, where),
            output_mb=self.positive(table, "output-mb", int, where),
            install_s=self.positive(table, "install-s", float, where),
            free_disk_gb=None if disk == "auto" else self.positive(table, "free-disk-gb", float, where),
        )

    def _subjects(self, table: dict[str, Any]) -> dict[str, dict[str, Any]]:
        subjects = {}
        for alias, entry in table.items():
            where = f"subjects.{alias}."
            if not re.fullmatch(r"[a-z0-9_]+", alias):
                self.wrong(f"subjects.{alias}", "an alias is made of a-z, 0-9 and _")
            if not isinstance(entry, dict):
                self.wrong(f"subjects.{alias}", 'must be a table, as { build = "package.module:build" }')
                continue
            self._unknown(entry, ("build", "requirements", "uses"), where)
            filled = {"requirements": [], "uses": [], **entry}
            lists = {name: self.texts(filled, name, where) for name in ("requirements", "uses")}
            subjects[alias] = {"build": self.value(filled, "build", str, where), **lists}
        return subjects

    def _elsewhere(self, table: dict[str, Any]) -> dict[str, str]:
        return {claim: self.value(table, claim, str, "elsewhere.") for claim in table}

    def _releases(self, project: Path, table: dict[str, Any]) -> dict[str, Release]:
        releases = {}
        for name, entry in table.items():
            where = f"releases.{name}."
            if not isinstance(entry, dict):
                self.wrong(f"releases.{name}", "must be a table, as { python = '3.11' }")
                continue
            self._unknown(entry, ("python", "pins", "wheel", "index-url"), where)
            self._version(name, f"releases.{name}")
            filled = {"pins": [], "wheel": "", "index-url": "", **entry}
            wheel = self.value(filled, "wheel", str, where)
            if wheel and not (project / wheel).is_file():
                self.wrong(where + "wheel", f"{wheel} does not exist in {project}")
            releases[name] = Release(
                version=name,
                python=self.value(filled, "python", str, where),
                pins=self._requirements(filled, where),
                wheel=str((project / wheel).absolute()) if wheel else "",
                index_url=self.value(filled, "index-url", str, where),
            )
        return releases

    def _requirements(self, table: dict[str, Any], where: str) -> tuple[str, ...]:
        pins = self.texts(table, "pins", where)
        for pin in pins:
            try:
                Requirement(pin)
            except InvalidRequirement as error:
                self.wrong(where + "pins", f"{pin!r} is no requirement: {str(error).splitlines()[0]}")
        return pins

    def _version(self, name: str, where: str) -> None:
        try:
            if Version(name).local:
                self.wrong(
                    where, "a release has no local part; the build is told in the environment, the tag of a target tells builds apart"
                )
        except InvalidVersion:
            self.wrong(where, f"{name!r} is no version")

    def _profiles(self, table: dict[str, Any], releases: dict[str, Release]) -> dict[str, tuple[str, ...]]:
        profiles = {name: self.texts(table, name, "profiles.") for name in table}
        for name, versions in profiles.items():
            for version in versions:
                if version not in releases:
                    self.wrong(f"profiles.{name}", f"unknown release {version!r}{_close(version, releases)}")
        return profiles

    def _newest_only(self, table: dict[str, Any], profiles: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        for profile in table:
            if profile not in profiles:
                self.wrong(f"newest-only.{profile}", f"unknown profile{_close(profile, profiles)}")
        return {profile: self.choices(table, profile, FAMILIES) for profile in table}

    def _packages(self, table: dict[str, Any]) -> dict[str, Package]:
        packages = {}
        for name, entry in table.items():
            where = f"packages.{name}."
            if not isinstance(entry, dict):
                self.wrong(f"packages.{name}", "must be a table, as { version = '==1.2' }")
                continue
            self._unknown(entry, ("version", "python", "platforms"), where)
            filled = {"version": "", "python": "", "platforms": [], **entry}
            for key in ("version", "python"):
                self._specifier(filled, key, where)
            packages[name.lower()] = Package(
                name=name, version=str(filled["version"]), python=str(filled["python"]), platforms=self.texts(filled, "platforms", where)
            )
        return packages

    def _specifier(self, table: dict[str, Any], key: str, where: str) -> None:
        try:
            SpecifierSet(str(table[key]))
        except InvalidSpecifier:
            self.wrong(where + key, f"{table[key]!r} is no version specifier, as '>=2.4,<2.9'")

    def _targets(self, entries: list[Any]) -> tuple[Target, ...]:
        return tuple(self._target(entry, f"targets[{number}].") for number, entry in enumerate(entries) if self._is_table(entry, number))

    def _is_table(self, entry: Any, number: int) -> bool:
        if not isinstance(entry, dict):
            self.wrong(f"targets[{number}]", "must be a table")
        return isinstance(entry, dict)

    def _target(self, entry: dict[str, Any], where: str) -> Target:
        self._unknown(entry, ("platform", "device", "runs-on", "releases", "pins", "variables", "tag"), where)
        filled = {"runs-on": "", "releases": "", "pins": [], "variables": {}, "tag": "", **entry}
        device = self.value(filled, "device", str, where)
        if device and device not in DEVICES:
            self.wrong(where + "device", f"{device!r} is not known{_close(device, DEVICES)}")
        self._specifier(filled, "releases", where)
        variables = self.value(filled, "variables", dict, where)
        return Target(
            platform=self.value(filled, "platform", str, where),
            device=device,
            runs_on=self.value(filled, "runs-on", str, where),
            releases=self.value(filled, "releases", str, where),
            pins=self._requirements(filled, where),
            variables=tuple(sorted((str(name), str(value)) for name, value in variables.items())),
            tag=self.value(filled, "tag", str, where),
        )


def _kind(kind: type) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a table"}
    return names.get(kind, "nothing" if kind is type(None) else kind.__name__)
