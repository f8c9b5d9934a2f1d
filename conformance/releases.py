"""Releases of torch that the package index has and the configuration has not, and the edit that adds them to it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from packaging.version import Version

from conformance import interpreters
from conformance.artifacts import write_bytes
from conformance.config import Config, Release
from conformance.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: How many Python minors after that of the newest known release are tried, where the index has no wheel for it.
_PYTHONS_AHEAD = 4
_ASKED_AT_ONCE = 8
_PLATFORM = "x86_64-manylinux_2_28"

#: The newest torch in a range of versions that has a wheel for a Python, as `Index(">=2.16", "3.11")`; None where there is none.
Index = Callable[[str, str], "Version | None"]


@dataclass(frozen=True, kw_only=True)
class NewRelease:
    """A release that the configuration has not, and the one that it takes its Python and pins from, or whose place it takes."""

    release: Release
    after: str
    #: Whether it is a newer patch of `after`, not a newer minor.
    patch: bool

    def __str__(self) -> str:
        kind = "a newer patch of" if self.patch else "newer than"
        return f"torch {self.release.version} is {kind} {self.after} (Python {self.release.python})"

    @property
    def line(self) -> str:
        """Its entry in the table of releases."""
        pins = ", ".join(f'"{pin}"' for pin in self.release.pins)
        return f'"{self.release.version}" = {{ python = "{self.release.python}", pins = [{pins}] }}'


def new(config: Config, index: Index) -> list[NewRelease]:
    """What the index has beyond the configuration: the newest patch of each known minor, and of every minor after them; oldest first."""
    known = _newest_of_minors(config)
    if not known:
        raise ConfigError(f"{config.source} has no release that comes from the package index")
    newest = known[-1]
    if index(f"=={newest.version}", newest.python) is None:  # an index without what is known says nothing of what is new
        raise ConfigError(
            f"the package index has no torch {newest.version}, which is known: see uv's index, find-links and offline settings"
        )
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        patches = list(pool.map(lambda one: _patch(one, index), known))
    return [*(patch for patch in patches if patch is not None), *_minors(newest, index)]


def _newest_of_minors(config: Config) -> list[Release]:
    """The newest known release of each minor, oldest first; nightlies and wheels of one's own are not what the index is asked for."""
    newest: dict[tuple[int, int], Release] = {}
    for release in sorted(config.releases.values(), key=lambda release: Version(release.version)):
        version = Version(release.version)
        if not (version.is_prerelease or release.wheel or release.index_url):
            newest[version.major, version.minor] = release
    return list(newest.values())


def _patch(known: Release, index: Index) -> NewRelease | None:
    version = Version(known.version)
    patch = index(f">{version},<{version.major}.{version.minor + 1}", known.python)
    if patch is None:
        return None
    return NewRelease(release=Release(version=str(patch), python=known.python, pins=known.pins), after=known.version, patch=True)


def _minors(known: Release, index: Index) -> list[NewRelease]:
    """The newest patch of every minor after `known`, found from the newest down."""
    version = Version(known.version)
    first, below = f">={version.major}.{version.minor + 1}", ""
    releases: list[Release] = []
    while (newest := _for_some_python(f"{first}{below}", known.python, index)) is not None:
        releases.insert(0, Release(version=str(newest[0]), python=newest[1], pins=known.pins))
        below = f",<{newest[0].major}.{newest[0].minor}"
    return [NewRelease(release=release, after=before.version, patch=False) for before, release in pairwise([known, *releases])]


def _for_some_python(versions: str, python: str, index: Index) -> tuple[Version, str] | None:
    """The newest of `versions` that any Python from `python` on has a wheel of, with the oldest such Python."""
    minor = int(python.partition(".")[2])
    pythons = [f"3.{minor + ahead}" for ahead in range(_PYTHONS_AHEAD + 1)]
    offers = [(version, one) for one in pythons if (version := index(versions, one)) is not None]
    return max(offers, key=lambda offer: offer[0]) if offers else None  # max keeps the first of equals


def asked_of_uv(versions: str, python: str) -> Version | None:
    """The newest torch in that range with a Linux wheel for that Python, in whatever index uv is configured for.

    Raises ConfigError where the index does not answer.
    """
    command = [interpreters.uv(), "pip", "compile", "-", "--quiet", "--no-deps", "--no-header", "--no-annotate", "--no-build"]
    command += ["--prerelease", "disallow", "--python", sys.executable, "--python-version", python, "--python-platform", _PLATFORM]
    done = subprocess.run(command, input=f"torch{versions}\n", capture_output=True, text=True, check=False, timeout=300)
    match = re.search(r"^torch==([^\s+;]+)", done.stdout, re.M)
    if done.returncode == 0 and match:
        return Version(match.group(1))
    if "No solution found" in done.stderr:
        return None
    raise ConfigError(f"the package index could not be asked for torch{versions}: {' '.join(done.stderr.split())[-400:]}")


def file_of(config: Config) -> Path:
    """The file where a release of this project belongs: the tool's own defaults in its checkout, else the project's pyproject.toml."""
    own = config.project / "conformance" / "defaults.toml"
    return own if own.is_file() else config.project / "pyproject.toml"


def add(config: Config, found: Sequence[NewRelease]) -> Path:
    """Write the releases into the file where they belong, and return its path; comments and the order of keys stay.

    Raises ConfigError where the text does not lend itself to it.
    """
    path = file_of(config)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    after = before
    prefix = "" if path.name == "defaults.toml" else "tool.conformance."
    known = [*config.releases, *(one.release.version for one in found)]
    for one in found:
        after = _with_release(after, prefix, one)
        after = _with_profiles(after, prefix, one, known)
    lines = "\n".join(f"  {one.line}" for one in found)
    if not _adds_only(tomllib.loads(before), after, prefix, found):
        raise ConfigError(f"{path}: its releases are not written as this edit expects; add to [{prefix}releases] by hand:\n{lines}")
    write_bytes(path, after.encode())
    return path


def _with_release(text: str, prefix: str, one: NewRelease) -> str:
    """The text with the entry after that of the release which it follows, else at the head of the table, else in a table of its own."""
    entry = re.search(rf'^"{re.escape(one.after)}"\s*=.*$', text, re.M)
    header = re.search(rf"^\[{re.escape(prefix)}releases\].*$", text, re.M)
    place = entry or header
    if place is None:
        return f"{text.rstrip()}\n\n[{prefix}releases]\n{one.line}\n"
    return f"{text[: place.end()]}\n{one.line}{text[place.end() :]}"


def _with_profiles(text: str, prefix: str, one: NewRelease, known: Sequence[str]) -> str:
    """The text with the release in the profiles that held the one before it: in its place, or after it in those that list every minor."""
    header = re.search(rf"^\[{re.escape(prefix)}profiles\].*$", text, re.M)
    if header is None:
        return text
    end = re.search(r"^\[", text[header.end() :], re.M)
    stop = header.end() + end.start() if end else len(text)
    old, fresh = f'"{one.after}"', f'"{one.release.version}"'
    beside = {f'"{version}"' for version in _minor_before(one.after, known)}

    def edited(match: re.Match[str]) -> str:
        lists_all = not one.patch and any(version in match.group() for version in beside)
        return match.group().replace(old, f"{old}, {fresh}" if lists_all else fresh)

    return text[: header.end()] + re.sub(r"\[[^\]]*\]", edited, text[header.end() : stop]) + text[stop:]


def _minor_before(version: str, known: Sequence[str]) -> list[str]:
    """The known releases of the minor before that of `version`."""
    minors = {Version(one).release[:2] for one in known}
    before = max((minor for minor in minors if minor < Version(version).release[:2]), default=None)
    return [one for one in known if Version(one).release[:2] == before]


def _table(document: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found: Any = document
    for name in prefix.split(".")[:-1]:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _adds_only(before: dict[str, Any], text: str, prefix: str, found: Sequence[NewRelease]) -> bool:
    """Whether the edited text is TOML that differs by the new releases, and by them in profiles, alone."""
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    added = {one.release.version: {"python": one.release.python, "pins": list(one.release.pins)} for one in found}
    table, was = _table(after, prefix), _table(before, prefix)
    releases = {**was.get("releases", {}), **added}
    return table.get("releases") == releases and {**table, "releases": 0, "profiles": 0} == {**was, "releases": 0, "profiles": 0}
