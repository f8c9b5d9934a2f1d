"""The reusable workflow, executed: many machines, one table; what fails on the way is told, and nothing else changes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import dryrun
from tests.builders import cell, record, write_cell, write_plan
from tests.conftest import ROOT, project_with
from tests.workflows import JobRun, Runner, load

CELLS = [cell("2.4.1"), cell("2.8.0"), cell("2.10.0"), cell("2.11.0"), cell("2.13.0", "meta")]
CASES = """
import torch
from torch import nn
from conformance.incell import values


def test_adds(device):
    \"\"\"One and one are two.\"\"\"
    assert (torch.ones(3, device=device) + 1).shape == (3,)


@values
def test_draws(device, observe):
    \"\"\"The bits of a truncated normal, which changed at 2.12.\"\"\"
    drawn = nn.init.trunc_normal_(torch.empty(64, device=device))
    observe("drawn", drawn)
    assert drawn.abs().max() <= 2
"""


def _machines(folder: Path) -> dryrun.Chain:
    """What five machines left that measured three cases each, without having run any."""
    artifacts = folder / "artifacts"
    for each in CELLS:
        rows = [record(each, f"init.case_{number}") for number in range(3)]
        write_cell(artifacts / f"conformance.{each}", each, rows)
        write_plan(artifacts / f"conformance.{each}", [each])
    write_plan(artifacts / "conformance.plan", CELLS)
    (folder / "project").mkdir()
    (folder / "project" / "pyproject.toml").write_text("[tool.conformance]\n", encoding="utf-8")
    inputs = {"name": "conformance", "published": "reports", "gate": True, "tool": "."}
    runner = Runner(folder / "project", artifacts, dryrun.variables(folder, install=False))
    return dryrun.Chain(folder, runner, inputs, JobRun(folder / "plan"))


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> JobRun:
    chain = _machines(tmp_path_factory.mktemp("spoiled"))
    names = [f"conformance.{each}" for each in CELLS]
    faults = dict(zip(("lost", "twice", "damaged", "newer"), names))
    return chain.report("report", dryrun.spoil(chain.runner.artifacts, chain.folder / "copy", **faults))


def test_each_fault_of_a_machine_is_told_by_a_line(spoiled: JobRun) -> None:
    lost, twice, damaged, newer, _ = CELLS
    lines = dryrun.told(spoiled)
    assert lines[0].startswith("3 cells under ")
    assert re.sub(r"\(Expecting [^)]*\)\)", "(...)", lines[1]) == (
        f"unreadable: machines/conformance.{damaged}: {damaged}/records.jsonl:3: the line is cut off (...): this record is lost"
    )
    assert lines[2:] == [
        f"unreadable: machines/conformance.{newer}: {newer}/environment.json: has schema 2, this tool reads 1: "
        "use the version that wrote it",
        f"repeated: {twice} came 2 times with equal results, and counts once",
        f"missing: {lost} was planned, and nothing that can be read came of it",
        f"missing: {newer} was planned, and nothing that can be read came of it",
    ]


def test_the_report_is_made_of_the_rest_and_the_job_is_red(spoiled: JobRun) -> None:
    assert spoiled.result == "failure"
    assert "records are incomplete: 5 cells judged" in spoiled.log
    assert f"missing: init.case_2: collected, and no record came [cpu, torch {CELLS[2].torch}]" in spoiled.log
    table = (spoiled.folder / "workspace" / dryrun.OUT / "matrix.csv").read_text(encoding="utf-8")
    assert table.count(",missing,") == 3
    assert "| `torch2.4.1-py3.11-cpu-linux_x86_64` | not measured" in spoiled.summary


def test_only_whole_columns_are_published(spoiled: JobRun) -> None:
    published = spoiled.folder / "workspace" / "reports" / "published"
    assert {path.name for path in published.glob("*.xz")} == {f"{CELLS[1]}.json.xz", f"{CELLS[4]}.json.xz"}
    assert spoiled.outputs["publish"] == "true"
    assert "2 columns published, 3 held back" in spoiled.log


@pytest.mark.slow
def test_where_nothing_may_be_published_there_are_no_pages(tmp_path: Path) -> None:
    chain = _machines(tmp_path)
    for each in CELLS:
        shutil.rmtree(chain.runner.artifacts / f"conformance.{each}")
    done = chain.report("report")
    assert (done.result, done.outputs["publish"]) == ("failure", "false")
    assert "conformance-pages" not in {path.name for path in chain.runner.artifacts.iterdir()}


@pytest.mark.slow
def test_the_action_leaves_its_report_where_nothing_could_be_measured(tmp_path: Path) -> None:
    """No machine has that Python: the job is red, and its summary and artifact say why."""
    (tmp_path / "project").mkdir()
    text = '[tool.conformance]\npython-downloads = false\nfamilies = ["init"]\n[tool.conformance.releases]\n"2.8.0" = { python = "3.99" }\n'
    (tmp_path / "project" / "pyproject.toml").write_text(text, encoding="utf-8")
    action = load(ROOT / "action.yml")
    inputs = {name: each["default"] for name, each in action["inputs"].items()}
    runner = Runner(tmp_path / "project", tmp_path / "artifacts", dryrun.variables(tmp_path, install=False))
    (tmp_path / "job" / "workspace").mkdir(parents=True)
    shutil.copy(tmp_path / "project" / "pyproject.toml", tmp_path / "job" / "workspace")
    steps = {"steps": action["runs"]["steps"]}
    done = runner.run(steps, tmp_path / "job", {"inputs": {**inputs, "torch": "2.8.0", "devices": "cpu", "index": "pypi"}})
    assert done.result == "failure"
    assert "no environment could be made for any cell" in done.log
    assert "no Python 3.99 here" in done.summary
    assert (tmp_path / "artifacts" / "conformance-report" / "site" / "index.html").is_file()


# ---- on real torch: one job plans, three machines measure, one makes the table


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> dryrun.Chain:
    project = tmp_path_factory.mktemp("project")
    targets = [("cpu", ""), ("meta", "==2.13.0")]
    tables = [
        f'[[tool.conformance.targets]]\nplatform = "linux_x86_64"\ndevice = "{device}"\nruns-on = "ubuntu-24.04"\nreleases = "{releases}"'
        for device, releases in targets
    ]
    project_with(project, extra='cases = ["mine"]\n' + "\n".join(tables))
    text = (project / "pyproject.toml").read_text(encoding="utf-8").replace("cases = []\n", "", 1)
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    (project / "mine").mkdir()
    (project / "mine" / "test_mine.py").write_text(CASES, encoding="utf-8")
    return dryrun.start(project, tmp_path_factory.mktemp("chain") / "run", torch="2.11.0,2.13.0", index="auto")


@pytest.mark.slow
def test_three_machines_and_one_make_the_same_report(chain: dryrun.Chain) -> None:
    assert [job.result for job in chain.cells.values()] == ["success"] * 3
    whole = chain.report("report")
    assert (whole.result, dryrun.told(whole)) == ("success", [f"3 cells under {whole.folder / 'workspace' / dryrun.OUT / 'results'}"])
    many = dryrun.report_files(whole.folder / "workspace" / dryrun.OUT)
    one = dryrun.single_machine(chain)
    environment = {**chain.runner.variables, "HOME": str(Path.home())}
    subprocess.run(
        ["conformance", "--reports", str(one), "report"], cwd=chain.runner.project, env=environment, check=True, capture_output=True
    )
    assert many == dryrun.report_files(one)
    assert {"site/index.html", "matrix.csv", "summary.md", "badge.json"} <= set(many)
    rows = [json.loads(line) for path in sorted(one.rglob("records.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["verdict"] for row in rows) == ["pass"] * 5 + ["unsupported"]
    assert "changes its bits at 2.13.0" in whole.summary


@pytest.mark.slow
def test_real_machines_may_fail(chain: dryrun.Chain) -> None:
    meta, old, new = (f"conformance.{job}" for job in sorted(chain.cells, key=lambda job: ("meta" not in job, "2.11" not in job)))
    faulty = dryrun.spoil(chain.runner.artifacts, chain.folder / "faulty", lost=meta, twice=old, newer=new)
    done = chain.report("faulty-report", faulty)
    words = [line.partition(":")[0] for line in dryrun.told(done)[1:]]
    assert (done.result, words) == ("failure", ["unreadable", "repeated", "missing", "missing"])


def test_the_dry_run_is_of_the_workflow_that_others_call() -> None:
    assert (ROOT / ".github" / "workflows" / "cells.yml").is_file()
    assert {"plan", "cell", "report"} == set(dryrun.load(dryrun.FOLDER / "cells.yml")["jobs"])
