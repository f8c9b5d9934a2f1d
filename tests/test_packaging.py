"""The wheel, installed where nothing else is: it has its cases, its templates and its tables, and a model can be checked with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, project_with

from conformance import __version__
from conformance.interpreters import uv

pytestmark = pytest.mark.slow

MODEL = "import torch\ndef build():\n    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n"


def _run(*command: str, folder: Path) -> str:
    """Run a command in a folder from which nothing of this checkout can be imported; returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source distribution as an installer would where there is no wheel."""
    out = tmp_path_factory.mktemp("dist")
    _run(uv(), "build", "--quiet", "--out-dir", str(out), str(ROOT), folder=out)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command of an environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("installed")
    _run(uv(), "venv", "--quiet", "--python", sys.executable, str(folder / "env"), folder=folder)
    _run(uv(), "pip", "install", "--quiet", "--python", str(folder / "env"), str(wheel), folder=folder)
    return str(folder / "env" / "bin" / "conformance")


def test_the_wheel_holds_what_the_checkout_has(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "cases", "conformance"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = [name for name in tracked.stdout.splitlines() if "__pycache__" not in name]
    assert len(listed) > 200
    assert [name for name in listed if (f"conformance/{name}" if name.startswith("cases/") else name) not in names] == []


def test_it_says_its_version_and_its_plan_in_an_empty_folder(command: str, tmp_path: Path) -> None:
    assert _run(command, "--version", folder=tmp_path).strip() == f"torch-conformance {__version__}"
    plan = _run(command, "plan", "--device", "cpu", folder=tmp_path)
    assert "3 cells" in plan
    assert list(tmp_path.iterdir()) == []


def test_it_runs_without_being_installed(wheel: Path, tmp_path: Path) -> None:
    said = _run(uv(), "tool", "run", "--quiet", "--from", str(wheel), "conformance", "--version", folder=tmp_path)
    assert said.strip() == f"torch-conformance {__version__}"


def test_a_model_of_three_lines_gets_its_report(command: str, tmp_path: Path) -> None:
    project_with(tmp_path, families=["init"])
    (tmp_path / "net.py").write_text(MODEL, encoding="utf-8")
    said = _run(command, "check", "net.py:build", "--torch", "2.13.0", "--device", "cpu", "--case", "init.subject_copies*", folder=tmp_path)
    assert re.search(r"^init\.copies +✓$", said, re.M)
    assert "requires on cpu" in said
    page = tmp_path / "reports" / "check" / "net" / "site" / "index.html"
    assert f"report: {page}" in said
    assert page.is_file()
    assert ">net<" in (page.parent / "models.html").read_text(encoding="utf-8")
