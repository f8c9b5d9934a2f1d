"""Environments of the cells: one base and one per requirement set, made by uv, reused only if they are what was asked for."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from conformance import interpreters
from conformance.config import Config
from conformance.environmentspecs import Environment, Request
from conformance.incell.requirementsets import BASE
from conformance.indexes import Indexes
from conformance.installer import Installer
from conformance.plan import PlannedCell

_REQUEST, _LOCK = "conformance-request.json", "conformance-lock.txt"


class Environments:
    """Makes and drops the environments of one run, and remembers what it learned about the index."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        self._config = config
        self._indexes = Indexes(config, say)
        self._installer = Installer(config, self._indexes, say)

    def request(self, planned: PlannedCell, name: str = BASE, extra: Sequence[str] = (), held: str = "") -> Request:
        """What the environment of a cell's requirement set must hold."""
        release = planned.release
        asked = {Requirement(need).name.lower() for need in extra}  # what a case or subject asks for goes before a pin of the release
        extra = [self._pinned(need) for need in extra]
        pins = [pin for pin in (*release.pins, *planned.target.pins) if Requirement(pin).name.lower() not in asked]
        return Request(
            torch=release.version,
            python=release.python,
            backend=self._backend(planned),
            requirements=(*pins, *extra),
            name=name,
            wheel=release.wheel,
            index_url=release.index_url,
            held=held,
        )

    def lack(self, planned: PlannedCell, requirements: Sequence[str]) -> str:
        """Why a requirement set cannot be had in a cell, by what the configuration says of its packages; empty where nothing forbids it."""
        for need in requirements:
            package = self._config.packages.get(Requirement(need).name.lower())
            if package is None:
                continue
            if package.platforms and planned.cell.platform not in package.platforms:
                return f"{package.name} has no wheel for {planned.cell.platform}"
            if not SpecifierSet(package.python).contains(planned.release.python):
                return f"{package.name} wants Python {package.python}, this cell has {planned.release.python}"
        return ""

    def _pinned(self, need: str) -> str:
        """A requirement at the version that the configuration pins, where it names none itself."""
        requirement = Requirement(need)
        package = self._config.packages.get(requirement.name.lower())
        return f"{need}{package.version}" if package is not None and not requirement.specifier and not requirement.url else need

    def _backend(self, planned: PlannedCell) -> str:
        return self._indexes.backend(planned)

    def provide(self, request: Request) -> Environment:
        """The environment of that request: reused when it is what was asked for and starts, else made. Raises InstallError."""
        self._config.environments.mkdir(parents=True, exist_ok=True)
        path = self._config.environments / request.folder
        with _alone(path.with_name(f"{path.name}.lock")):
            return self._reusable(request, path) or self._make(request, path)

    def _make(self, request: Request, path: Path) -> Environment:
        self._installer.make(request, path)
        lock = freeze(path)
        (path / _LOCK).write_text("\n".join(lock) + "\n", encoding="utf-8")
        (path / _REQUEST).write_text(json.dumps(asdict(request), sort_keys=True), encoding="utf-8")
        self._installer.keep_lock(request, lock)
        return Environment(request=request, path=path, lock=lock)

    def _reusable(self, request: Request, path: Path) -> Environment | None:
        try:
            asked = json.loads((path / _REQUEST).read_text(encoding="utf-8"))
            lock = tuple((path / _LOCK).read_text(encoding="utf-8").split("\n")[:-1])
        except (OSError, ValueError):
            return None
        if asked != json.loads(json.dumps(asdict(request))):
            return None
        return Environment(request=request, path=path, lock=lock) if _starts(path) and freeze(path) == lock else None

    def drop(self, environment: Environment) -> None:
        """Remove an environment, and from uv's cache the large packages that it held: links into the cache would keep the space."""
        remove(environment)
        names = [line.partition("==")[0] for line in environment.lock]
        large = [name for name in names if name in ("torch", "triton", "torch-xla", "libtpu") or name.startswith(("nvidia-", "cuda-"))]
        subprocess.run([interpreters.uv(), "cache", "clean", "--quiet", *large], capture_output=True, check=False, timeout=600)


def freeze(path: Path) -> tuple[str, ...]:
    """What is installed in an environment, `name==version` a line, read from the distributions' own metadata folders."""
    found = []
    for folder in path.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        found.append(f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}")
    return tuple(sorted(found))


def remove(environment: Environment) -> None:
    """Remove an environment that can be made again from uv's cache."""
    shutil.rmtree(environment.path, ignore_errors=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold an environment while it is looked at and made: another run may want the same one."""
    with path.open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def clean(config: Config, say: Callable[[str], None]) -> None:
    """Remove every environment and lock of the project, and prune uv's cache."""
    folder = config.environments.parent if config.environments.parent.name == ".conformance" else config.environments
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([interpreters.uv(), "cache", "prune", "--quiet"], capture_output=True, check=False, timeout=600)
    say(f"removed {folder}")


def _starts(path: Path) -> bool:
    try:
        done = subprocess.run([str(path / "bin" / "python"), "-c", ""], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
