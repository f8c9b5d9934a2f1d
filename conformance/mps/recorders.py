"""Recordings of a subject, made in environments that have torch: the one at hand, or one of the tool's own a release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from conformance import plan as plans
from conformance.config import Config
from conformance.environments import Environments
from conformance.errors import ConfigError
from conformance.mps.table import Table, with_installed
from conformance.subjectspecs import SubjectSpec

_PACKAGE = Path(__file__).parent.parent
#: Dispatch keys whose entries are asked of the recording build's dispatcher.
KEYS = ("CUDA", "XLA", "Meta")
_LIMIT_S = 600


@dataclass(frozen=True)
class How:
    """How a subject is recorded."""

    entered: tuple[str, ...]
    device: str = "cpu"
    optimizer: str = "AdamW"
    #: The device that is asked about: torch-xla's is in an environment of its own, and must be loaded.
    about: str = "mps"


def here(model: SubjectSpec, how: How) -> dict[str, Any]:
    """The recording made in the environment that runs this."""
    return record(Path(sys.executable), model, how, os.environ.get("PYTHONPATH", ""))


def environments_of(config: Config) -> Environments:
    """The maker of the tool's environments; one a command, so that what is said of the package index is said once."""
    return Environments(config, lambda line: print(line, file=sys.stderr))


def provided(environments: Environments, config: Config, release: str, model: SubjectSpec, how: How) -> dict[str, Any]:
    """The recording made in the tool's environment of a release, with what the subject needs. Raises InstallError."""
    device = "xla" if how.about == "xla" else "cpu"
    return record(environment(environments, config, release, model.alias, model.requirements, device), model, how, own=True)


def xla_releases(config: Config, text: str) -> list[str]:
    """The releases that torch-xla can be had for, oldest first. Raises NothingSelectedError where `text` leaves none."""
    planned, _ = plans.cells(config, plans.Selection(torch=text, devices=("xla",)))
    return sorted({each.release.version for each in planned}, key=Version)


def environment(
    environments: Environments, config: Config, release: str, name: str, requirements: Sequence[str], device: str = "cpu"
) -> Path:
    """The interpreter of the tool's environment of a release that has those packages. Raises InstallError."""
    planned = plans.cells(config, plans.Selection(torch=release, devices=(device,)))[0][0]
    found = environments.provide(environments.request(planned))
    if requirements:
        found = environments.provide(environments.request(planned, f"mps-{name}", requirements, found.torch_build))
    return found.python


def record(python: Path, model: SubjectSpec, how: How, path: str = "", *, own: bool = False) -> dict[str, Any]:
    """The recording of a subject by an interpreter that has torch, `path` on its import path. Raises ConfigError with its last words.

    `own`: the environment is the tool's, so that the bytecode of its packages may be left there.
    """
    roots = [str(root) for root in model.roots] or [str(_PACKAGE / "subjects")]
    with tempfile.TemporaryDirectory() as folder:
        out, settings = Path(folder) / "recording.json", Path(folder) / "settings.json"
        asked: dict[str, Any] = {"reference": model.reference, "alias": model.alias, "roots": roots, "keys": KEYS, "out": str(out)}
        asked |= {"entered": how.entered, "device": how.device, "optimizer": how.optimizer}
        asked |= {"about": how.about, "leaves_bytecode": own}
        settings.write_text(json.dumps(asked), encoding="utf-8")
        told = run_in_cell(python, "conformance.incell.auditing", [str(settings)], folder, path)
        if not out.is_file():
            raise ConfigError(f"{model.alias} cannot be recorded: {told}")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


def run_in_cell(python: Path, module: str, arguments: Sequence[str], folder: str, path: str = "") -> str:
    """Run a module of ours with an interpreter that has torch; returns the end of what it said on standard error."""
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")}
    variables |= {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_PACKAGE.parent), path))),
        "OMP_NUM_THREADS": "1",
        "PYTORCH_ENABLE_MPS_FALLBACK": "0",
    }
    command = [str(python), "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it did not end within {_LIMIT_S} s"
    return "\n".join(done.stderr.strip().splitlines()[-6:]) or f"it ended with {done.returncode}"


def with_own(table: Table, recording: dict[str, Any]) -> Table:
    """The table with what the build that recorded declares for itself, where it brings its declarations."""
    path = Path(recording["declarations"])
    return with_installed(table, release_of(recording), path.read_text(encoding="utf-8")) if path.is_file() else table


def release_of(recording: dict[str, Any]) -> str:
    """The release that a recording was made with, without its local part."""
    return str(Version(recording["torch"]).base_version)
