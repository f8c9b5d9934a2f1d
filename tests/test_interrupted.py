"""A run that is killed goes on where it was: same records as an undisturbed one, none lost, none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, project_with, records_of, run_conformance
from test_planted import CELL

CASES = """
import time
import pytest

@pytest.mark.parametrize("number", range(40))
def test_slowly(number, observe):
    time.sleep(0.15)
    observe("number", number)
    assert number % 7 != 3
"""
#: What differs between two runs by nature.
VOLATILE = ("started_at", "duration_s")


def _project(folder: Path) -> Path:
    folder.mkdir()
    cases = folder / "mine"
    cases.mkdir()
    (cases / "test_slow.py").write_text(CASES, encoding="utf-8")
    return project_with(folder, cases=[cases], families=["control"])


def _facts(project: Path) -> list[str]:
    return [json.dumps({**record, **dict.fromkeys(VOLATILE)}, sort_keys=True) for record in records_of(project, CELL)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    project = _project(tmp_path_factory.mktemp("undisturbed") / "project")
    done = run_conformance(project, "run", "--only", CELL, "--family", "user")
    assert done.returncode == 0, done.stderr
    return _facts(project)


def _start(project: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "conformance", "run", "--only", CELL, "--family", "user"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=project, env=environment, preexec_fn=_hear_interrupts, **quiet)  # type: ignore[call-overload]


def _hear_interrupts() -> None:
    """A test run that was put into the background has SIGINT ignored, and its children with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ended(project: Path) -> int:
    """Cases that have ended so far, by the journals."""
    journals = (project / "reports" / "work").rglob("*.jsonl")
    return sum(path.read_bytes().count(b'"event":"end"') for path in journals)


def _orphans(project: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        environment = process.info["environ"] or {}
        if environment.get("CONFORMANCE_SETTINGS", "").startswith(str(project)):
            found.append(process.pid)
    return found


@pytest.mark.slow
def test_sigkill_at_random_moments_loses_and_doubles_nothing(tmp_path: Path, undisturbed: list[str]) -> None:
    project = _project(tmp_path / "project")
    moments = random.Random(20261130)
    for _ in range(3):
        run = _start(project)
        before, wanted = _ended(project), moments.randint(2, 9)
        deadline = time.monotonic() + 60
        while _ended(project) < before + wanted and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
        run.wait()
        time.sleep(0.5)
        assert _orphans(project) == []
    done = run_conformance(project, "run", "--only", CELL, "--family", "user")
    assert done.returncode == 0, done.stderr
    assert "kept" in done.stderr
    assert _facts(project) == undisturbed


@pytest.mark.slow
def test_interrupt_ends_children_at_once_and_keeps_records(tmp_path: Path, undisturbed: list[str]) -> None:
    project = _project(tmp_path / "project")
    run = _start(project)
    while _ended(project) < 6 and run.poll() is None:
        time.sleep(0.02)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=10) == 130
    assert time.monotonic() - began < 5
    assert _orphans(project) == []
    assert len(records_of(project, CELL)) >= 6
    assert run_conformance(project, "run", "--only", CELL, "--family", "user").returncode == 0
    assert _facts(project) == undisturbed


@pytest.mark.slow
def test_second_run_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    project = _project(tmp_path / "project")
    run = _start(project)
    while _ended(project) < 1 and run.poll() is None:
        time.sleep(0.02)
    second = run_conformance(project, "run", "--only", CELL, "--family", "user")
    run.send_signal(signal.SIGINT)
    run.wait(timeout=10)
    assert second.returncode == 2
    assert f"another run (process {run.pid}) holds" in second.stderr


@pytest.mark.slow
def test_rerun_without_a_change_starts_nothing(tmp_path: Path) -> None:
    project = _project(tmp_path / "project")
    assert run_conformance(project, "run", "--only", CELL, "--family", "user").returncode == 0
    before = records_of(project, CELL)
    again = run_conformance(project, "run", "--only", CELL, "--family", "user")
    assert "(40 kept)" in again.stderr
    assert records_of(project, CELL) == before
    case = project / "mine" / "test_slow.py"
    case.write_text(CASES.replace("% 7", "% 11"), encoding="utf-8")
    assert "kept" not in run_conformance(project, "run", "--only", CELL, "--family", "user").stderr
    assert [record["verdict"] for record in records_of(project, CELL)].count("wrong") == 4
