"""What cases are made of, tested where it runs: guards and instruments in the environment of a cell."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, project_with

from conformance import configfile, plan
from conformance.environments import Environments


@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.11.0", "2.13.0"])
def test_guards_and_instruments_in_a_cell(tmp_path: Path, release: str) -> None:
    configured = configfile.load(project_with(tmp_path, families=["init"]))
    cell = plan.make(configured, plan.Selection(torch=release, devices=("cpu",), families=("init",))).cells[0]
    environments = Environments(configured, print)
    python = environments.provide(environments.request(cell)).python
    inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    variables = {**inherited, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [str(python), "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(Path(__file__).parent / "incell")]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    passed = re.search(r"^(\d+) passed", done.stdout.splitlines()[-1]) if done.stdout else None
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
    assert passed is not None
    assert int(passed[1]) >= 40
