"""Python interpreters: found through uv, on PATH and under pyenv's root, where uv's own search does not look."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.errors import InstallError


def uv() -> str:
    """The path of uv: the one that came as a dependency, else the one on PATH. Raises InstallError where there is none."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
        if found is None:
            raise InstallError("uv is not installed: `python -m pip install uv`") from None
        return found


@functools.cache
def find(version: str, *, download: bool) -> str:
    """The path of an interpreter of that version, as `3.11`. Raises InstallError that says where was looked.

    With `download` and none found, uv is asked to fetch one.
    """
    for candidate in _candidates(version):
        if _version_of(candidate) == version:
            return candidate
    if download:
        return _downloaded(version)
    raise InstallError(
        f"no Python {version} here: looked on PATH, in uv's own and under pyenv's root; "
        f"`uv python install {version}` or `pyenv install {version}` makes one"
    )


def _candidates(version: str) -> Iterator[str]:
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version and sys.prefix == sys.base_prefix:
        yield sys.executable
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(entry) / f"python{version}"
        if path.is_file() and "shims" not in path.parts:
            yield str(path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for folder in sorted(pyenv.glob(f"{version}.*"), key=_patch, reverse=True):
        yield str(folder / "bin" / f"python{version}")
    found = _uv_python("find", version, "--no-python-downloads", "--system")
    if found:
        yield found


def _patch(folder: Path) -> int:
    digits = re.match(r"\d+", folder.name.rpartition(".")[2])
    return int(digits.group()) if digits else -1


def _uv_python(*arguments: str) -> str:
    command = [uv(), "python", *arguments, "--no-project"] if arguments[0] == "find" else [uv(), "python", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else ""


def _downloaded(version: str) -> str:
    command = [uv(), "python", "install", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    found = _uv_python("find", version, "--no-python-downloads") if done.returncode == 0 else ""
    if not found:
        words = " ".join(done.stderr.split())[-400:]
        raise InstallError(f"no Python {version} here, and uv could not fetch one: {words}")
    return found


def _version_of(path: str) -> str:
    """`3.11` for an interpreter that starts; empty for anything else."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
