"""The scripts beside the pages of cases that deviate: which cases have one, what it says, and on real torch that it is true."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest
from builders import grid
from conftest import ENVIRONMENTS, ROOT, project_with, run_conformance
from pages import Page, site

from conformance import configfile, plan, reproduction
from conformance.globalnames import NotSliceableError
from conformance.incell.verdicts import Verdict
from conformance.plan import Selection
from conformance.report.sources import SourceFile, read_files
from conformance.results import read

STUB = "fallbacks.name_that_is_a_stub_native"
ADDRESS = f"scripts/{STUB}.py"


@functools.cache
def _files() -> list[SourceFile]:
    configured = configfile.load(ROOT)
    return read_files(file for file in plan.case_files(configured, Selection()) if file.case == "fallbacks.presence")


@functools.cache
def _paths() -> dict[str, Path]:
    return {name: file.path for file in plan.case_files(configfile.load(ROOT), Selection()) for name in plan.case_names(file)}


def test_a_case_that_deviates_has_a_script_with_both_answers() -> None:
    pages = site(grid({STUB: {"1.13.1": "pass", "2.0.1": "raises", "2.1.2": "raises"}}), files=_files())
    text = pages[ADDRESS]
    compile(text, ADDRESS, "exec")
    assert "BEFORE, AFTER = ('torch 1.13.1', 'pass'), ('torch 2.1.2', 'raises')" in text
    assert "its verdict changes between torch 1.13.1 and 2.1.2." in text
    assert "import conformance" not in text
    page = Page(pages[f"cases/{STUB}.html"])
    assert f"../{ADDRESS}" in page.links
    assert "uv run --no-project --python 3.11 --with 'torch==2.1.2'" in page.words
    assert "def test_name_that_is_a_stub_native" in page.words.partition("Report it upstream")[2]


def test_what_passes_nowhere_is_held_against_what_the_case_asks() -> None:
    text = site(grid({STUB: {"2.1.2": "raises"}}), files=_files())[ADDRESS]
    assert "BEFORE, AFTER = ('it should be', 'pass'), ('torch 2.1.2', 'raises')" in text
    assert f"{STUB}: its verdict is raises on torch 2.1.2." in text


def test_what_passes_or_has_no_source_has_no_script() -> None:
    assert ADDRESS not in site(grid({STUB: {"1.13.1": "pass"}}), files=_files())
    assert ADDRESS not in site(grid({STUB: {"2.1.2": "raises"}}))


def test_each_case_that_deviates_can_stand_on_its_own_or_says_why_not() -> None:
    """One case of each function that deviates in the published results; lowering needs compilers of its own."""
    found: dict[str, reproduction.Wanted] = {}
    files = _paths()
    for cell in read(ROOT / "reports" / "published").cells:
        for case, record in cell.outcomes().items():
            name = case.partition("[")[0]
            if Verdict(record["verdict"]).deviates and name in files:
                side = reproduction.Neighbour(cell.cell.torch, record["verdict"], "", "")
                found[name] = reproduction.Wanted(
                    case=case, file=files[name], params=record["params"], device="cpu", observation="", before=side, after=side
                )
    assert len(found) > 100
    refused = {}
    for name, wanted in found.items():
        try:
            compile(reproduction.script(wanted), name, "exec")
        except NotSliceableError as error:
            refused[name] = str(error)
    assert {name.partition(".")[0] for name in refused} <= {"lowering"}, refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "params", "deviates_by", "code"),
    [
        (STUB, {}, "raises", 1),
        ("compile.changing_float_settles", {}, "wrong", 0),
        ("fallbacks.rms_norm_fallback_agrees_native", {"norm": "takes_eps_of_the_dtype"}, "wrong", 1),
    ],
)
def test_scripts_give_their_answers_on_real_torch(tmp_path: Path, case: str, params: dict[str, str], deviates_by: str, code: int) -> None:
    """What 2.13.0 does: deviates, does what is asked, deviates for one of several parameters."""
    project = project_with(tmp_path, families=["fallbacks"])
    done = run_conformance(project, "run", "--torch", "2.13.0", "--device", "cpu", "--case", STUB)
    assert done.returncode == 0, done.stdout + done.stderr
    (python,) = ENVIRONMENTS.glob("torch2.13.0-*-base-*/bin/python")
    asked, other = reproduction.Neighbour("", "pass", "", ""), reproduction.Neighbour("2.13.0", deviates_by, "", "")
    file = _paths()[case]
    wanted = reproduction.Wanted(case=case, file=file, params=params, device="cpu", observation="", before=asked, after=other)
    path = tmp_path / "shown.py"
    path.write_text(reproduction.script(wanted), encoding="utf-8")
    ran = subprocess.run([str(python), "-I", str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
