"""The installer of environments: uv, under the configured limits, with the lock that an earlier install left."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import Requirement

from conformance import interpreters
from conformance.config import Config
from conformance.environmentspecs import Request
from conformance.errors import InstallError
from conformance.incell.scrub import Scrubber, private_names, process_roots
from conformance.indexes import Indexes

#: Free gigabytes before an install of a build that is not in uv's cache: PyPI's Linux wheels are CUDA builds of 5 GB, twice on disk.
_NEED_CUDA_GB, _NEED_CPU_GB, _NEED_CACHED_GB = 11.0, 2.5, 0.5


class Installer:
    """Makes an environment's folder hold what its request says. Every failure is an InstallError without names of indexes."""

    def __init__(self, config: Config, indexes: Indexes, say: Callable[[str], None]) -> None:
        self._config = config
        self._indexes = indexes
        self._say = say
        roots = {"<project>": str(config.project), "<environments>": str(config.environments), **process_roots()}
        self._scrub = Scrubber(roots, private_names())

    def make(self, request: Request, path: Path) -> None:
        """Make the environment in that folder, which is gone again where it cannot be made. Raises InstallError."""
        python = interpreters.find(request.python, download=self._config.python_downloads)
        self._check_disk(request)
        self._say(f"making environment {path.name}")
        self._uv("venv", "--quiet", "--clear", "--no-project", "--python", python, str(path))
        try:
            self._install(request, path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def _install(self, request: Request, path: Path) -> None:
        torch = request.wheel or f"torch=={request.held or request.torch}"
        arguments = ["pip", "install", "--quiet", "--python", str(path / "bin" / "python"), *self._indexes.arguments(request)]
        wanted = [torch, *(word for need in request.requirements for word in _as_arguments(need)), *request.tools]
        lock = self._kept_lock(request)
        if lock.is_file():
            try:
                return self._uv(*arguments, "--constraint", str(lock), *wanted)
            except InstallError:
                self._say(f"the lock of {path.name} does not resolve any more: resolving anew")
        return self._uv(*arguments, *wanted)

    def _kept_lock(self, request: Request) -> Path:
        return self._config.environments.parent / "locks" / f"{request.folder}.txt"

    def keep_lock(self, request: Request, lock: tuple[str, ...]) -> None:
        """Keep the lock outside the environment, so that one that was dropped is made again with the same versions."""
        path = self._kept_lock(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        pinned = [line for line in lock if "==" in line]
        path.write_text("\n".join(pinned) + "\n", encoding="utf-8")

    def _uv(self, *arguments: str) -> None:
        try:
            done = subprocess.run(
                [interpreters.uv(), *arguments], capture_output=True, text=True, check=False, timeout=self._config.limits.install_s
            )
        except subprocess.TimeoutExpired as error:
            raise InstallError(f"uv did not end within {self._config.limits.install_s:.0f} s (limits.install-s)") from error
        if done.returncode:
            tail = self._scrub.urls(done.stderr).strip()[-1500:]
            raise InstallError(f"uv {' '.join(arguments[:2])} failed: {tail}")

    def _check_disk(self, request: Request) -> None:
        need = self._config.limits.free_disk_gb
        if need is None:
            need = _need(request)
        free = shutil.disk_usage(self._config.environments).free / 1e9
        if free < need:
            raise InstallError(
                f"disk: {free:.1f} GB are free, this install needs about {need:.1f} GB; "
                "free some (`nox -s clean`), or let each environment go after its cell (--drop-environments)"
            )


def _need(request: Request) -> float:
    """The free gigabytes that an install of that request takes."""
    cache = _cache()
    if cache is not None and any(cache.glob(f"archive-v*/*/torch-{request.torch}*.dist-info")):
        return _NEED_CACHED_GB
    cpu_build = request.backend == "cpu" or request.wheel or not sys.platform.startswith("linux")
    return _NEED_CPU_GB if cpu_build else _NEED_CUDA_GB


def _cache() -> Path | None:
    """uv's cache, where it tells one."""
    done = subprocess.run([interpreters.uv(), "cache", "dir"], capture_output=True, text=True, check=False, timeout=60)
    return Path(done.stdout.strip()) if done.returncode == 0 and done.stdout.strip() else None


def _as_arguments(requirement: str) -> list[str]:
    """A requirement as uv takes it: a project's own folder is installed in place, so that its code is the one that is checked."""
    folder = (Requirement(requirement).url or "").removeprefix("file://")
    return ["--editable", folder] if folder and Path(folder).is_dir() else [requirement]
