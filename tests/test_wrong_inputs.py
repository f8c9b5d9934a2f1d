"""Wrong inputs: each has a message that says what, where and what to do, and its exit code. No torch is needed to be wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import project_with, records_of, run_conformance

from conformance.cells import this_platform
from conformance.cli import main

CELL = f"torch2.8.0-py3.11-cpu-{this_platform()}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("profil = 'quick'", "profil: unknown key; perhaps you meant 'profile'"),
        ("devices = 'cpu'", "devices: must be a list, is a text 'cpu'"),
        ("profile = 'nightly'", "profile: 'nightly' is not known"),
        ("cases = ['nowhere']", "nowhere does not exist"),
        ("seed = [", "not valid TOML"),
    ],
)
def test_wrong_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.conformance]\n{text}\n", encoding="utf-8")
    assert main(["--project", str(tmp_path), "plan"]) == 2
    told = capsys.readouterr().err
    assert "pyproject.toml" in told
    assert words in told


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["plan", "--torch", "2.1*"], 2, "globs are for ids"),
        (["plan", "--torch", "2.8.1"], 2, "no release of the configuration; close: 2.9.1, 2.8.0"),
        (["plan", "--device", "gpu"], 2, "--device 'gpu' is not known"),
        (["plan", "--family", "rop"], 2, "close: rope"),
        (["plan", "--only", "torch2.8.0-py3.12-*"], 2, "no cell matches"),
        (["plan", "--case", "init.no_such_case"], 2, "no case matches"),
        (["plan", "--profile", "quik"], 2, "close: quick"),
        (["plan", "--torch", "1.13.1", "--device", "meta"], 3, "nothing is selected"),
        (["--project", "nowhere", "plan"], 2, "there is no such folder"),
        (["gate"], 2, "there is no folder of results"),
        (["report"], 2, "there is no folder of results"),
        (["collect", "nowhere"], 2, "there is no folder nowhere"),
        (["run", "--repeat", "0"], 2, "must be 1 or more"),
        (["run", "-n", "-1"], 2, "must be 0 or more"),
        (["expect"], 2, "required"),
        (["frobnicate"], 2, "invalid choice"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        found = main(arguments)
    except SystemExit as error:  # argparse's own
        found = int(str(error.code))
    assert found == code
    assert words in capsys.readouterr().err


def test_no_disk_makes_error_records_and_exit_4(tmp_path: Path) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"  # one that is here
    extra = f"limits.free-disk-gb = 1e9\nindex = 'pypi'\n[tool.conformance.releases]\n'2.8.0' = {{ python = '{python}' }}"
    project = project_with(tmp_path, families=["init", "trace"], environments=tmp_path / "environments", extra=extra)
    cell = CELL.replace("py3.11", f"py{python}")
    done = run_conformance(project, "run", "--only", cell)
    assert done.returncode == 4
    assert "GB are free, this install needs about" in done.stderr
    assert "nox -s clean" in done.stderr
    records = records_of(project, cell)
    assert {record["verdict"] for record in records} == {"error"}
    assert {record["stage"] for record in records} == {"install"}
    assert {record["family"] for record in records} == {"init", "trace"}
    assert all("[" not in record["case"] and "disk: " in record["reason"] for record in records)


def _without_interpreter(folder: Path) -> Path:
    extra = "python-downloads = false\nlimits.free-disk-gb = 1e9\n[tool.conformance.releases]\n'2.8.0' = { python = '3.99' }"
    return project_with(folder, families=["init"], environments=folder / "environments", extra=extra)


def test_a_missing_interpreter_is_an_error_of_its_cell(tmp_path: Path) -> None:
    project = _without_interpreter(tmp_path)
    cell = CELL.replace("py3.11", "py3.99")
    done = run_conformance(project, "run", "--only", cell)
    assert done.returncode == 4
    assert "no Python 3.99 here: looked on PATH" in done.stderr
    assert {(record["verdict"], record["stage"]) for record in records_of(project, cell)} == {("error", "install")}


def test_matrix_reports_cells_that_could_not_be_made_and_keeps_exit_4(tmp_path: Path) -> None:
    project = _without_interpreter(tmp_path)
    done = run_conformance(project, "matrix", "--only", CELL.replace("py3.11", "py3.99"))
    assert done.returncode == 4
    assert (project / "reports" / "site" / "index.html").is_file()
    assert "no Python 3.99 here" in (project / "reports" / "summary.md").read_text(encoding="utf-8")


def test_damaged_results_are_told_and_exit_5(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    folder = project / "reports" / "results" / CELL
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text('{"schema": 1, "cell": "tor', encoding="utf-8")
    (folder / "environment.json").write_text("{", encoding="utf-8")
    (folder / "collected.json").write_text(json.dumps({"schema": 1, "cases": [{"case": "init.a", "family": "init"}], "files": []}))
    done = run_conformance(project, "gate")
    assert done.returncode == 5
    assert "records.jsonl:1" in done.stdout
    assert "init.a" in done.stdout
    assert run_conformance(project, "report").returncode == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    (project / "reports").mkdir(mode=0o500)
    done = run_conformance(project, "run", "--only", CELL)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_file_in_place_of_the_reports_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    assert main(["--project", str(tmp_path), "--reports", str(tmp_path / "taken"), "run", "--only", CELL]) == 2
    assert "taken" in capsys.readouterr().err


def test_expectations_of_the_tool_itself_are_not_edited_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reports").mkdir()
    assert main(["--project", str(tmp_path), "expect", "--prune"]) == 2
    assert "no expectations file of this project is configured" in capsys.readouterr().err
