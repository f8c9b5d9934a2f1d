"""Environments of the cells: one base and one per requirement set, made by uv, reused only if they are what was asked for."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance import interpreters
from conformance.config import Config
from conformance.errors import InstallError
from conformance.incell.requirementsets import BASE
from conformance.incell.scrub import Scrubber, private_names, process_roots
from conformance.plan import PlannedCell

#: What the tool itself puts into a measured environment, and nothing else.
TOOLS = ("pytest>=9", "pytest-xdist>=3.8")
_REQUEST, _LOCK = "conformance-request.json", "conformance-lock.txt"
#: Free gigabytes before an install of a build that is not in uv's cache: PyPI's Linux wheels are CUDA builds of 5 GB, twice on disk.
_NEED_CUDA_GB, _NEED_CPU_GB, _NEED_CACHED_GB = 11.0, 2.5, 0.5


@dataclass(frozen=True, kw_only=True)
class Request:
    """What an environment must hold. Equal requests share one environment, so a cpu cell and a meta cell do."""

    torch: str
    python: str
    #: uv's --torch-backend: cpu, auto, xpu; empty for PyPI's build.
    backend: str
    requirements: tuple[str, ...]
    name: str = BASE
    wheel: str = ""
    index_url: str = ""
    #: The exact build of the cell's base environment, which a requirement set must keep.
    held: str = ""
    tools: tuple[str, ...] = TOOLS

    @property
    def folder(self) -> str:
        """A folder name that tells people what it is, and requests apart."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"torch{self.torch}-py{self.python}-{self.name}-{digest}"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment that is there. `lock` lists every installed distribution, a line each."""

    request: Request
    path: Path
    lock: tuple[str, ...] = field(default=())

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    @property
    def torch_build(self) -> str:
        """torch's version with its local part, as the lock has it."""
        for line in self.lock:
            name, _, version = line.partition("==")
            if name == "torch":
                return version
        return self.request.torch


class Environments:
    """Makes and drops the environments of one run, and remembers what it learned about the index."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._index_answers: dict[str, bool] = {}
        roots = {"<project>": str(config.project), "<environments>": str(config.environments), **process_roots()}
        self.scrub = Scrubber(roots, private_names())

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
        """Which of PyTorch's indexes the build comes from: empty means PyPI."""
        device = planned.cell.device
        own_source = planned.release.wheel or planned.release.index_url
        if self._config.index == "pypi" or own_source or device == "xla" or planned.cell.platform.startswith("macos"):
            return ""
        backend = {"cuda": "auto", "xpu": "xpu"}.get(device, "cpu")
        return backend if self._config.index == "pytorch" or self._answers() else ""

    def _answers(self) -> bool:
        """Whether PyTorch's index can be reached; asked once a run, and said in one line when it cannot."""
        url = self._config.pytorch_index_url
        if url not in self._index_answers:
            self._index_answers[url] = _reachable(f"{url.rstrip('/')}/cpu/torch/")
            if not self._index_answers[url]:
                self._say("PyTorch's package index cannot be reached: taking PyPI's builds (on Linux CUDA builds, about 5 GB a release)")
        return self._index_answers[url]

    def provide(self, request: Request) -> Environment:
        """The environment of that request: reused when it is what was asked for and starts, else made. Raises InstallError."""
        self._config.environments.mkdir(parents=True, exist_ok=True)
        path = self._config.environments / request.folder
        with _alone(path.with_name(f"{path.name}.lock")):
            return self._reusable(request, path) or self._make(request, path)

    def _make(self, request: Request, path: Path) -> Environment:
        python = interpreters.find(request.python, download=self._config.python_downloads)
        self._check_disk(request)
        self._say(f"making environment {path.name}")
        self._uv("venv", "--quiet", "--clear", "--no-project", "--python", python, str(path))
        try:
            self._install(request, path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        lock = self._freeze(path)
        (path / _LOCK).write_text("\n".join(lock) + "\n", encoding="utf-8")
        (path / _REQUEST).write_text(json.dumps(asdict(request), sort_keys=True), encoding="utf-8")
        self._keep_lock(request, lock)
        return Environment(request=request, path=path, lock=lock)

    def _reusable(self, request: Request, path: Path) -> Environment | None:
        try:
            asked = json.loads((path / _REQUEST).read_text(encoding="utf-8"))
            lock = tuple((path / _LOCK).read_text(encoding="utf-8").split("\n")[:-1])
        except (OSError, ValueError):
            return None
        if asked != json.loads(json.dumps(asdict(request))):
            return None
        return Environment(request=request, path=path, lock=lock) if _starts(path) and self._freeze(path) == lock else None

    def _install(self, request: Request, path: Path) -> None:
        torch = request.wheel or f"torch=={request.held or request.torch}"
        arguments = ["pip", "install", "--quiet", "--python", str(path / "bin" / "python")]
        if request.backend and self._config.pytorch_index_url == _default_index():
            arguments += ["--torch-backend", request.backend]
        elif request.backend:
            arguments += ["--index", f"{self._config.pytorch_index_url.rstrip('/')}/{request.backend}"]
        if request.index_url:
            arguments += ["--index", request.index_url, "--prerelease", "allow"]
        lock = self._kept_lock(request)
        wanted = [torch, *(word for need in request.requirements for word in _as_arguments(need)), *request.tools]
        if lock is not None:
            try:
                return self._uv(*arguments, "--constraint", str(lock), *wanted)
            except InstallError:
                self._say(f"the lock of {path.name} does not resolve any more: resolving anew")
        return self._uv(*arguments, *wanted)

    def _locks(self) -> Path:
        return self._config.environments.parent / "locks"

    def _kept_lock(self, request: Request) -> Path | None:
        path = self._locks() / f"{request.folder}.txt"
        return path if path.is_file() else None

    def _keep_lock(self, request: Request, lock: tuple[str, ...]) -> None:
        """Keep the lock outside the environment, so that one that was dropped is made again with the same versions."""
        self._locks().mkdir(parents=True, exist_ok=True)
        pinned = [line for line in lock if "==" in line]
        (self._locks() / f"{request.folder}.txt").write_text("\n".join(pinned) + "\n", encoding="utf-8")

    def _freeze(self, path: Path) -> tuple[str, ...]:
        """What is installed there, `name==version` a line, read from the distributions' own metadata folders."""
        found = []
        for folder in path.glob("lib/python*/site-packages/*.dist-info"):
            name, _, version = folder.name.removesuffix(".dist-info").partition("-")
            found.append(f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}")
        return tuple(sorted(found))

    def _uv(self, *arguments: str) -> None:
        try:
            done = subprocess.run(
                [interpreters.uv(), *arguments], capture_output=True, text=True, check=False, timeout=self._config.limits.install_s
            )
        except subprocess.TimeoutExpired as error:
            raise InstallError(f"uv did not end within {self._config.limits.install_s:.0f} s (limits.install-s)") from error
        if done.returncode:
            tail = self.scrub.urls(done.stderr).strip()[-1500:]
            raise InstallError(f"uv {' '.join(arguments[:2])} failed: {tail}")

    def _check_disk(self, request: Request) -> None:
        need = self._config.limits.free_disk_gb
        if need is None:
            need = self._need(request)
        free = shutil.disk_usage(self._config.environments).free / 1e9
        if free < need:
            raise InstallError(
                f"disk: {free:.1f} GB are free, this install needs about {need:.1f} GB; "
                "free some (`nox -s clean`), or let each environment go after its cell (--drop-environments)"
            )

    def _need(self, request: Request) -> float:
        cache = self.cache()
        if cache is not None and any(cache.glob(f"archive-v*/*/torch-{request.torch}*.dist-info")):
            return _NEED_CACHED_GB
        cpu_build = request.backend == "cpu" or request.wheel or not _linux()
        return _NEED_CPU_GB if cpu_build else _NEED_CUDA_GB

    def cache(self) -> Path | None:
        """uv's cache, where it tells one."""
        done = subprocess.run([interpreters.uv(), "cache", "dir"], capture_output=True, text=True, check=False, timeout=60)
        return Path(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip() else None

    def drop(self, environment: Environment) -> None:
        """Remove an environment, and from uv's cache the large packages that it held: links into the cache would keep the space."""
        remove(environment)
        names = [line.partition("==")[0] for line in environment.lock]
        large = [name for name in names if name in ("torch", "triton", "torch-xla", "libtpu") or name.startswith(("nvidia-", "cuda-"))]
        subprocess.run([interpreters.uv(), "cache", "clean", "--quiet", *large], capture_output=True, check=False, timeout=600)


def remove(environment: Environment) -> None:
    """Remove an environment that can be made again from uv's cache."""
    shutil.rmtree(environment.path, ignore_errors=True)


class AtHand(Environments):
    """The environment that runs this command, in place of new ones: for builds that no index has. Nothing is installed."""

    def provide(self, request: Request) -> Environment:
        """This environment, for the cell whose torch and Python it has, and for each of its requirement sets. Raises InstallError."""
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        try:
            found = Version(importlib.metadata.version("torch"))
            importlib.metadata.version("pytest")
        except importlib.metadata.PackageNotFoundError as error:
            raise InstallError(f"--here: this environment has no {error.name}") from error
        if (found.base_version, here) != (Version(request.torch).base_version, request.python):
            raise InstallError(
                f"--here: this environment has torch {found} and Python {here}, the cell wants {request.torch} and {request.python}"
            )
        path = Path(sys.prefix)
        return Environment(request=request, path=path, lock=self._freeze(path))

    def lack(self, planned: PlannedCell, requirements: Sequence[str]) -> str:
        """Nothing is installed here: the cell says itself what is not there."""
        return ""

    def drop(self, environment: Environment) -> None:
        """The user's own environment stays."""

    def _backend(self, planned: PlannedCell) -> str:
        return ""


def _as_arguments(requirement: str) -> list[str]:
    """A requirement as uv takes it: a project's own folder is installed in place, so that its code is the one that is checked."""
    folder = (Requirement(requirement).url or "").removeprefix("file://")
    return ["--editable", folder] if folder and Path(folder).is_dir() else [requirement]


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


def _reachable(url: str) -> bool:
    if url.startswith("file:"):
        return Path(url.removeprefix("file://")).exists()
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False


def _linux() -> bool:
    return sys.platform.startswith("linux")


def _default_index() -> str:
    return "https://download.pytorch.org/whl"
