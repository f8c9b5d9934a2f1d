"""The sweep of ops, tested in the environment of its requirement set: fourteen real faults are found, a clean CPU is silent."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, project_with

from conformance import configfile, plan
from conformance.environments import Environments
from conformance.incell.requirementsets import environment_name

#: What cases/mps/test_ops.py requires; conformance.instruments.opinfo, which says so too, imports torch.
REQUIREMENTS = ("expecttest", "pyyaml", "setuptools<80")


@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.13.0"])
def test_fourteen_faults_are_found(tmp_path: Path, release: str) -> None:
    configured = configfile.load(project_with(tmp_path, families=["mps"]))
    cell = plan.make(configured, plan.Selection(torch=release, devices=("cpu",), families=("mps",))).cells[0]
    environments = Environments(configured, print)
    held = environments.provide(environments.request(cell)).torch_build
    python = environments.provide(environments.request(cell, environment_name(REQUIREMENTS), REQUIREMENTS, held)).python
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [str(python), "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(Path(__file__).parent / "sweep")]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-500:]
    assert re.search(r"^25 passed", done.stdout.splitlines()[-1])
