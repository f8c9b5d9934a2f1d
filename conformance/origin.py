"""Where this tool came from: its repository on GitHub and the commit, which a workflow that calls ours must name."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from conformance.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
_REPOSITORY = r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+?"
_ADDRESS = re.compile(rf"(?:git\+)?(?:\w+://)?(?:[^@/]*@)?github\.com[/:](?P<repository>{_REPOSITORY})(?:\.git)?/?")
_NAMED = re.compile(rf"(?P<repository>{_REPOSITORY})@(?P<ref>[A-Za-z0-9._/-]+)")


@dataclass(frozen=True)
class Origin:
    """`owner/name` of a repository on GitHub, and a commit or tag of it."""

    repository: str
    ref: str


def origin(named: str = "") -> Origin:
    """What is named as `owner/name@commit`; else what pip recorded of this installation; else the origin of this checkout.

    Raises ConfigError where none of them says.
    """
    if named:
        match = _NAMED.fullmatch(named)
        if match is None:
            raise ConfigError(f"--tool {named!r} is no repository with a commit or a tag, as owner/torch-conformance@1a2b3c4")
        return Origin(match["repository"], match["ref"])
    found = _installed() or _checkout()
    if found is None:
        raise ConfigError(
            "nothing here says which repository on GitHub this tool came from (pip records it of `pip install git+https://...`, "
            "git of a clone): name it and a commit, --tool owner/torch-conformance@1a2b3c4"
        )
    return found


def of_address(address: str, ref: str) -> Origin | None:
    """The origin behind the address of a repository as git and pip write it; None where it is not on GitHub, or no commit is known."""
    match = _ADDRESS.fullmatch(address.strip())
    return Origin(match["repository"], ref.strip()) if match and ref.strip() else None


def _installed() -> Origin | None:
    """What pip recorded when it installed this package out of a repository (direct_url.json, packaging.python.org)."""
    try:
        told = json.loads(metadata.distribution("torch-conformance").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    return of_address(str(told.get("url", "")), str(told.get("vcs_info", {}).get("commit_id", "")))


def _checkout() -> Origin | None:
    """The origin and the commit of the checkout that holds this package at its top; None in any other folder of a repository."""
    top = _git("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() / "conformance" != _PACKAGE:
        return None
    return of_address(_git("remote", "get-url", "origin"), _git("rev-parse", "HEAD"))


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(_PACKAGE), *words], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
