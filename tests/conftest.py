"""What tests of the library share: a project with a configuration, and the command run in it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


#: Measured environments are shared between the tests that run cases.
ENVIRONMENTS = ROOT / ".conformance" / "environments"


def project_with(
    folder: Path, *, cases: Sequence[Path] = (), families: Sequence[str] = (), environments: Path = ENVIRONMENTS, extra: str = ""
) -> Path:
    """A project folder whose pyproject.toml configures the tool."""
    lines = [
        "[tool.conformance]",
        f"cases = {json.dumps([str(path) for path in cases])}",
        f"families = {json.dumps(list(families))}",
        f"environments = {json.dumps(str(environments))}",
        extra,
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    return folder


def run_conformance(project: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, in the project's folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    command = [sys.executable, "-m", "conformance", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def run_here(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: for those that start none of their own, in a fraction of the time."""
    from conformance.cli import main

    command = ["--project", str(project), *arguments]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def records_of(project: Path, cell: str) -> list[dict[str, Any]]:
    """The records of a cell, as they lie on disk."""
    lines = (project / "reports" / "results" / cell / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
