"""Cells dealt out to the machines of a scheduler, and the labels of their runners."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance import cli, configfile, jobs, plan
from conformance.config import Config
from conformance.errors import ConfigError, NothingSelectedError
from conformance.plan import PlannedCell, Selection

MANY = "\n".join(f'"2.100.{patch}" = {{ python = "3.11" }}' for patch in range(200))


@pytest.fixture
def configured(tmp_path: Path) -> Config:
    return configfile.load(tmp_path)


def _cells(config: Config, **asked: object) -> tuple[PlannedCell, ...]:
    return plan.make(config, Selection(**{"platform": "all", **asked})).cells  # type: ignore[arg-type]


@pytest.fixture
def many(tmp_path: Path) -> tuple[PlannedCell, ...]:
    (tmp_path / "pyproject.toml").write_text(f"[tool.conformance.releases]\n{MANY}\n", encoding="utf-8")
    return _cells(configfile.load(tmp_path), torch="==2.100.*")


def test_a_cell_is_a_job_where_there_is_room(configured: Config) -> None:
    cells = _cells(configured, profile="full")
    dealt = jobs.jobs(cells, jobs.MOST)
    assert sorted(job.name for job in dealt) == sorted(str(cell.cell) for cell in cells)
    assert all(job.ids == job.name for job in dealt)


@pytest.mark.parametrize("most", [2, 3, 7, 256, 799, 800])
def test_beyond_the_limit_jobs_share_the_cells(many: tuple[PlannedCell, ...], most: int) -> None:
    assert len(many) == 800
    dealt = jobs.jobs(many, most)
    assert len(dealt) == most
    assert sorted(id for job in dealt for id in job.ids.split()) == sorted(str(cell.cell) for cell in many)
    assert len({job.name for job in dealt}) == most
    for platform in ("linux_x86_64", "macos_arm64"):
        sizes = [len(job.cells) for job in dealt if job.cells[0].cell.platform == platform]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= -(-400 // (most // 2))


def test_a_job_holds_cells_of_one_kind_of_runner_and_shared_environments_together(many: tuple[PlannedCell, ...]) -> None:
    for job in jobs.jobs(many, 100):
        assert len({(cell.cell.platform, cell.target.runs_on) for cell in job.cells}) == 1
        releases = [cell.cell.torch for cell in job.cells]
        assert len(set(releases)) == 4


def test_a_row_says_what_its_machine_must_be(configured: Config) -> None:
    labelled = jobs.labelled(configured, "linux_x86_64/cuda=self-hosted,linux,gpu")
    dealt = jobs.jobs(_cells(labelled, torch="2.8.0", devices=("cuda", "mps")), 256)
    assert [job.as_json() for job in dealt] == [
        {
            "job": "torch2.8.0-py3.11-cuda-linux_x86_64",
            "cells": "torch2.8.0-py3.11-cuda-linux_x86_64",
            "runs_on": ["self-hosted", "linux", "gpu"],
        },
        {
            "job": "torch2.8.0-py3.11-mps-macos_arm64",
            "cells": "torch2.8.0-py3.11-mps-macos_arm64",
            "runs_on": "macos-15",
        },
    ]


def test_more_kinds_of_runner_than_jobs_are_refused(configured: Config) -> None:
    with pytest.raises(ConfigError, match=r"needs 2 kinds of runner: linux_x86_64 \(ubuntu-24.04\), macos_arm64 \(macos-15\)"):
        jobs.jobs(_cells(configured, torch="2.8.0"), 1)


def test_no_label_is_no_job_even_for_a_device_asked_for_by_name(configured: Config) -> None:
    with pytest.raises(NothingSelectedError, match="no runner label is configured"):
        _cells(configured, torch="2.8.0", devices=("cuda",))
    assert len(_cells(configured, torch="2.8.0", devices=("cuda",), platform="linux_x86_64")) == 1
    without_macs = jobs.labelled(configured, "macos_arm64=")
    assert {cell.cell.platform for cell in _cells(without_macs, torch="2.8.0")} == {"linux_x86_64"}


def test_a_platform_relabels_its_targets_that_have_a_label(configured: Config) -> None:
    labels = {(target.platform, target.device): target.runs_on for target in jobs.labelled(configured, "linux_x86_64=ubuntu-26.04").targets}
    assert labels["linux_x86_64", "cpu"] == labels["linux_x86_64", "meta"] == "ubuntu-26.04"
    assert labels["linux_x86_64", "cuda"] == ""
    assert labels["macos_arm64", "mps"] == "macos-15"


def test_a_tag_tells_two_targets_of_one_device_apart(tmp_path: Path) -> None:
    target = '[[tool.conformance.targets]]\nplatform = "macos_arm64"\ndevice = "mps"\nruns-on = "macos-15"\n'
    (tmp_path / "pyproject.toml").write_text(f'{target}{target}tag = "macos26"\n', encoding="utf-8")
    config = jobs.labelled(configfile.load(tmp_path), "macos_arm64/mps/macos26=macos-26")
    assert [target.runs_on for target in config.targets] == ["macos-15", "macos-26"]


@pytest.mark.parametrize("word", ["macos_arm64", "macos=macos-26", "linux_x86_64/mps=x", "=x"])
def test_labels_that_name_no_target_are_refused(configured: Config, word: str) -> None:
    with pytest.raises(ConfigError, match="PLATFORM"):
        jobs.labelled(configured, word)


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 0
    return capsys.readouterr().out


def test_the_list_is_what_only_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ("--project", str(tmp_path), "--reports", str(tmp_path / "out"))
    asked = ("--platform", "linux_x86_64", "--device", "cpu,meta", "--torch", "2.8.0,2.13.0")
    lines = _printed(capsys, *here, "plan", *asked, "--list", "--jobs", "2").splitlines()
    assert len(lines) == 2
    again = _printed(capsys, *here, "plan", "--platform", "linux_x86_64", "--only", lines[0], "--list").splitlines()
    assert again == lines[0].split()


def test_the_written_plan_is_that_of_all_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    rows = json.loads(
        _printed(capsys, "--reports", str(out), "plan", "--platform", "all", "--torch", "2.8.0", "--jobs", "2", "--json", "--write")
    )
    written = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    assert sorted(cell["cell"] for cell in written["cells"]) == sorted(id for row in rows["include"] for id in row["cells"].split())


def test_a_plan_for_a_model_has_the_files_of_its_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text("build = None", encoding="utf-8")
    here = ("--project", str(tmp_path), "--reports", str(tmp_path / "out"))
    found = []
    for subject in ("net.py:build", ""):  # an input of a workflow that is not given is empty
        _printed(capsys, *here, "plan", "--subject", subject, "--device", "cpu", "--platform", "linux_x86_64", "--write")
        written = json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))
        found.append((written["subjects"], len(written["files"])))
    (model, checks), (none, cases) = found
    assert (model, none) == (["net"], [])
    assert 4 <= checks < cases
