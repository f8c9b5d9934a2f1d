"""The scripts for Slurm and Kubernetes, executed for every index of a real plan: each cell is measured once, by one machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from conformance import cli
from tests import dryrun
from tests.conftest import ROOT

SCRIPTS = ROOT / "docs" / "schedulers"
CELLS = [f"torch{torch}-py3.99-{device}-linux_x86_64" for torch in ("2.8.0", "2.13.0") for device in ("cpu", "meta")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose environments cannot be made, since no machine has that Python: its cells end at once, each with its records."""
    text = '[tool.conformance]\npython-downloads = false\nfamilies = ["init"]\n[tool.conformance.releases]\n'
    text += "".join(f'"{torch}" = {{ python = "3.99" }}\n' for torch in ("2.8.0", "2.13.0"))
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    return tmp_path


def _planned(project: Path, capsys: pytest.CaptureFixture[str], *options: str) -> int:
    """Writes plan.json and cells.txt as the comment of each script says; returns the number of lines."""
    asked = ("--platform", "linux_x86_64", "--device", "cpu,meta", "--torch", "2.8.0,2.13.0", *options)
    assert cli.main(["--project", str(project), "--reports", str(project / "reports"), "plan", *asked, "--write", "--list"]) == 0
    text = capsys.readouterr().out
    (project / "cells.txt").write_text(text, encoding="utf-8")
    return len(text.splitlines())


def _execute(project: Path, command: list[str], variables: Mapping[str, str]) -> int:
    environment = {**os.environ, **dryrun.variables(project / variables["NAME"], install=False), **variables}
    options = {"CONFORMANCE_OPTIONS": "--index pypi"}
    return subprocess.run(command, cwd=project, env={**environment, **options}, capture_output=True, check=False).returncode


def _merged(project: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert cli.main(["--project", str(project), "--reports", str(project / "reports"), "collect", str(project / "machines")]) == 0
    return capsys.readouterr().out.splitlines()


def test_slurm_runs_each_line_of_the_plan_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _planned(project, capsys, "--jobs", "3")
    assert lines == 3
    for index in range(1, lines + 1):
        code = _execute(project, ["bash", str(SCRIPTS / "slurm.sh")], {"SLURM_ARRAY_TASK_ID": str(index), "NAME": f"node{index}"})
        assert code == 4
    assert _merged(project, capsys) == [f"4 cells under {project / 'reports' / 'results'}"]
    assert sorted(path.name for path in (project / "reports" / "results").iterdir()) == sorted(CELLS)


def test_slurm_gives_a_node_that_ended_early_its_cell_back(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _planned(project, capsys)
    _execute(project, ["bash", str(SCRIPTS / "slurm.sh")], {"SLURM_ARRAY_TASK_ID": "2", "NAME": "node"})
    missing = _merged(project, capsys)[1:]
    assert len(missing) == 3
    assert all(line.startswith("missing: ") for line in missing)


def test_an_index_beyond_the_plan_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _planned(project, capsys)
    assert _execute(project, ["bash", str(SCRIPTS / "slurm.sh")], {"SLURM_ARRAY_TASK_ID": "9", "NAME": "node"}) == 2
    assert not (project / "machines").exists()


def test_kubernetes_runs_each_line_of_the_plan_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _planned(project, capsys, "--jobs", "2")
    job = yaml.safe_load((SCRIPTS / "kubernetes.yaml").read_text(encoding="utf-8"))["spec"]
    assert (job["completionMode"], job["template"]["spec"]["restartPolicy"]) == ("Indexed", "Never")
    assert job["maxFailedIndexes"] == job["completions"]
    container = job["template"]["spec"]["containers"][0]
    places = {"CELLS": str(project / "cells.txt"), "MACHINES": str(project / "machines")}
    for index in range(lines):
        command = [*container["command"], *container["args"]]
        assert _execute(project, command, {**places, "JOB_COMPLETION_INDEX": str(index), "NAME": f"pod{index}"}) == 4
    assert _merged(project, capsys) == [f"4 cells under {project / 'reports' / 'results'}"]


def test_what_the_pod_mounts_is_what_its_script_reads() -> None:
    pod = yaml.safe_load((SCRIPTS / "kubernetes.yaml").read_text(encoding="utf-8"))["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"plan": "/plan", "machines": "/machines"}
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)
    assert all(f"-{path}" in pod["containers"][0]["args"][0] for path in mounts.values())
