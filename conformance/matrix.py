"""A run of the matrix: plan, cells one after the other, results. Everything that it learns is on disk when it ends, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conformance.artifacts import write_json
from conformance.config import Config
from conformance.environmentathand import AtHand
from conformance.environments import Environments
from conformance.environmentspecs import Environment
from conformance.errors import BusyError, NoEnvironmentError, NothingSelectedError
from conformance.incell.requirementsets import BASE
from conformance.options import Options
from conformance.plan import Plan, PlannedCell
from conformance.progress import Progress
from conformance.supervisor import CellRun


@dataclass
class Run:
    """What a run came to: the cells whose environment could be made, and those whose could not, with the reason."""

    measured: list[str] = field(default_factory=list)
    not_installed: dict[str, str] = field(default_factory=dict)
    #: The environments that cells ran in.
    environments: list[Environment] = field(default_factory=list)
    #: How many cases, or files whose cases are not known, the selection left in all cells.
    selected: int = 0


def run(config: Config, plan: Plan, options: Options) -> Run:
    """Run every planned cell. Raises BusyError where another run holds the folder, NoEnvironmentError when no cell
    could be measured, NothingSelectedError when the selected cases exist in none.
    """
    done = measure(config, plan, options)
    if plan.selection.cases and done.measured and not done.selected:
        raise NothingSelectedError(f"no case of any cell matches {' '.join(plan.selection.cases)}; `conformance plan --cases` lists them")
    if not done.measured:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in done.not_installed.items())
        raise NoEnvironmentError(f"no environment could be made for any cell:\n{reasons}")
    return done


def measure(config: Config, plan: Plan, options: Options) -> Run:
    """Run every planned cell, and say what came of it. Raises BusyError where another run holds the folder."""
    with _held(config.reports):
        write_json(config.reports / "plan.json", plan.as_json())
        progress = Progress(len(plan.cells))
        environments = (AtHand if options.here else Environments)(config, progress.say)
        done = Run()
        cells = sorted(
            plan.cells, key=lambda planned: (planned.cell.version, planned.cell.sort_key)
        )  # those that share an environment together
        for number, planned in enumerate(cells):
            cell = CellRun(config, plan, planned, options, environments, progress)
            cell.run()
            _note(done, cell)
            if options.drop_environments:
                _drop(environments, cell, cells[number + 1 :])
        shutil.rmtree(config.reports / "work", ignore_errors=True)
    return done


def _note(done: Run, cell: CellRun) -> None:
    name, facts = str(cell.planned.cell), cell.ledger.facts
    done.environments += cell.harness.provided.values()
    if facts.get("status") == "install-failed":
        done.not_installed[name] = facts["reason"]
    else:
        done.measured.append(name)
        done.selected += cell.selected


def _drop(environments: Environments, cell: CellRun, later: Sequence[PlannedCell]) -> None:
    """Let the cell's environments go, but for those whose base a later cell shares."""
    base = cell.harness.provided.get(BASE)
    if base is not None and base.request.folder not in {environments.request(planned).folder for planned in later}:
        for environment in cell.harness.provided.values():
            environments.drop(environment)


@contextmanager
def _held(reports: Path) -> Iterator[None]:
    """Hold the folder of results: two runs at once would write over each other."""
    reports.mkdir(parents=True, exist_ok=True)
    path = reports / ".lock"
    with path.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise BusyError(
                f"another run (process {holder}) holds {reports}; wait for it, or give this one a folder by --reports"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def public_names(config: Config, plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Each planned release with the public names of its torch; makes environments."""
    environments = Environments(config, print)
    for planned in plan.cells:
        python = environments.provide(environments.request(planned)).python
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "names.json"
            command = [str(python), str(Path(__file__).parent / "incell" / "publicnames.py"), str(out)]
            subprocess.run(command, check=True, capture_output=True)
            yield planned.cell.torch, json.loads(out.read_text(encoding="utf-8"))


def collect_only(config: Config, plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Each planned cell with the ids of its cases; makes environments, runs nothing, leaves results as they are."""
    with _held(config.reports):
        progress = Progress(len(plan.cells))
        environments = Environments(config, progress.say)
        for planned in plan.cells:
            yield str(planned.cell), CellRun(config, plan, planned, Options(), environments, progress).collect()
