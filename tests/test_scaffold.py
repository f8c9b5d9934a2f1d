"""`conformance new-case`: what it writes is a case by every rule of this project, and on real torch its twin is caught."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT, project_with, records_of, run_conformance

from conformance import catalogue, configfile, scaffold
from conformance.cells import this_platform
from conformance.errors import ConfigError
from conformance.plan import CaseFile, Selection, case_files


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return project_with(tmp_path, cases=[tmp_path / "mine"])


def test_what_is_written_is_a_case(project: Path) -> None:
    done = run_conformance(project, "new-case", "user", "keeps_its_input")
    assert done.returncode == 0, done.stderr
    path = project / "mine" / "test_keeps_its_input.py"
    assert str(path) in done.stdout
    (file,) = case_files(configfile.load(project), Selection(cases=("user.keeps_its_input",)))
    assert file.path == path
    (entry,) = catalogue.entries([CaseFile(family="user", path=path, root=path.parent, case="user.keeps_its_input")])
    assert entry.title.endswith(".")
    assert re.search(r"\d", entry.source)
    assert entry.twins == (("adds_in_place", "wrong"),)


@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        ("user", "Keeps", "is no name of a case"),
        ("user", "test_keeps", "is no name of a case"),
        ("ropes", "keeps", "is no family; close: rope"),
        ("rope", "keeps", "belongs to the tool's own checkout"),
        ("user", "there", "there is a case user.there already"),
    ],
)
def test_what_cannot_be_written_is_told(project: Path, family: str, name: str, message: str) -> None:
    (project / "mine" / "test_others.py").write_text("def test_there(): pass\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        scaffold.new_case(configfile.load(project), family, name)


def test_a_project_without_a_folder_of_cases_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no folder for cases of your own"):
        scaffold.new_case(configfile.load(tmp_path), "user", "keeps")


def test_a_name_of_the_tool_is_taken() -> None:
    with pytest.raises(ConfigError, match=r"there is a case init\.initialiser_repeats already"):
        scaffold.new_case(configfile.load(ROOT), "init", "initialiser_repeats")


@pytest.mark.slow
def test_the_new_case_passes_and_catches_its_twin(project: Path) -> None:
    assert run_conformance(project, "new-case", "user", "keeps_its_input").returncode == 0
    cell = f"torch2.13.0-py3.11-cpu-{this_platform()}"
    asked = ("run", "--only", cell, "--case", "user.keeps_its_input")
    assert run_conformance(project, *asked).returncode == 0
    assert [(record["case"], record["verdict"]) for record in records_of(project, cell)] == [("user.keeps_its_input", "pass")]
    done = run_conformance(project, *asked, "--twins")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 wrong twins caught" in done.stdout
