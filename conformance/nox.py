"""The nox front: a noxfile of two lines gets the matrix, and every planned cell as a session of its own.

from conformance.nox import matrix
matrix()
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance import configfile, plan
from conformance.distributions import itself
from conformance.errors import ConformanceError


def cell_ids(project: Path) -> list[str]:
    """The ids of all cells that this machine could run, whatever the profile: what `nox -l` lists."""
    try:
        configured = configfile.load(project)
        made = plan.make(configured, plan.Selection(torch=">=0"))
    except ConformanceError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return []
    return [str(planned.cell) for planned in made.cells]


def conformance(session: Any, *arguments: str) -> None:
    """Run `conformance` in the session's environment; nox ends with its exit code when that is not 0."""
    command = [str(Path(session.bin) / "python"), "-m", "conformance", *arguments]
    session.log(" ".join(["conformance", *arguments]))
    code = subprocess.run(command, check=False).returncode
    if code:
        raise SystemExit(code)


def matrix(project: str | Path = ".", install: Sequence[str] = (), subject: str = "") -> None:
    """Define the sessions `matrix`, `cell(ID)` and, but for a subject, `report` for the project in that folder.

    With a `subject`, as "package.module:build", they run the checks on that model in place of the built-in cases. `install` is what
    session.install takes to have this tool in a session; left out, it is the tool that nox itself runs with.
    """
    import nox

    ids = cell_ids(Path(project))
    install = install or itself()
    command = ("check", subject) if subject else ("matrix",)

    @nox.session(name="matrix")
    def run_matrix(session: Any) -> None:
        """The matrix of the profile on the devices found here, then the report and the gate."""
        session.install(*install)
        conformance(session, *command, *session.posargs)

    @nox.session(default=False)
    @nox.parametrize("cell", [nox.param(one, id=one) for one in ids])
    def cell(session: Any, cell: str) -> None:
        """One cell, and its report."""
        session.install(*install)
        conformance(session, *command, "--only", cell, *session.posargs)

    if subject:  # whose check leaves its own report
        return

    @nox.session(default=False)
    def report(session: Any) -> None:
        """The report of all results at hand; needs no torch."""
        session.install(*install)
        conformance(session, "report", *session.posargs)
