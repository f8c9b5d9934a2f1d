"""Family `lowering` on real torch, torch-mlir and IREE: lines to blame, compilers that die or never end, wrong twins."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import ENVIRONMENTS, ROOT, project_with, records_of, run_conformance

from conformance.cells import this_platform

pytestmark = pytest.mark.slow

MODEL = ROOT / "tests" / "models" / "lowered.py"
CELL = f"torch2.13.0-py3.11-cpu-{this_platform()}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with(tmp_path_factory.mktemp("lowering"), families=["lowering"])


def _shown(folder: Path) -> subprocess.CompletedProcess[str]:
    """What the kept reproduction says where its program lies; its package is here already."""
    install, command = (folder / "reproduce.txt").read_text(encoding="utf-8").splitlines()
    assert install.startswith("pip install torch-mlir==")
    scripts = next(ENVIRONMENTS.glob("torch2.13.0-*-torch_mlir-[0-9a-f]*/bin"))
    found = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, shell=True, cwd=folder, env=found, capture_output=True, text=True, check=False)


def test_the_wrong_line_of_each_model_is_named_and_its_program_shows_it(project: Path) -> None:
    models = [f"{MODEL}:{name}" for name in ("Pools", "Scores", "Flattens")]
    asked = ("--use", "lowering", "--family", "lowering", "--case", "lowering.subject_lowers[*-script-all]")
    done = run_conformance(project, "check", *models, "--torch", "2.13.0", "--device", "cpu", *asked)
    assert done.returncode == 1, done.stdout + done.stderr
    wrong = [number for number, line in enumerate(MODEL.read_text(encoding="utf-8").splitlines(), 1) if "# the wrong line" in line]
    assert [int(line) for line in re.findall(r"lowered\.py:(\d+): return ", done.stdout)] == wrong
    reports = project / "reports" / "check" / "pools-scores-flattens"
    pools, scores, flattens = [_shown(reports / folder) for folder in re.findall(r"kept: (\S+)/program\.mlir", done.stdout)]
    assert f"lowered.py:{wrong[0]}:" in pools.stderr
    assert f"lowered.py:{wrong[1]}:" in scores.stderr
    assert re.search(r"tensor\.cast .* : tensor<\?x\?x4xf32> to tensor<\?x1x4xf32>", flattens.stdout)


def test_a_compiler_that_never_ends_is_a_record_and_the_others_go_on(project: Path) -> None:
    done = run_conformance(project, "matrix", "--only", CELL, "--case", "lowering.{boolean_index,cond}_native*")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "as expected: 1 cell judged, 0 findings" in done.stdout
    found = {each["case"].removeprefix("lowering."): each for each in records_of(project, CELL)}
    endless = found["boolean_index_native[export]"]
    assert (endless["verdict"], endless["stage"]) == ("timeout", "lower")
    assert _blamed(endless) == ("torch.aten.index.Tensor", "return x[x > 0].sum()")
    assert found["cond_native[export]"]["verdict"] == "raises"


def _blamed(died: dict[str, Any]) -> tuple[str, str]:
    """The op under work, and the line that it comes from."""
    return str(died["reason"]).partition("under work ")[2].partition(" ")[0], died["blame"]["source"]


def test_wrong_twins_come_to_what_they_state_a_dead_compiler_among_them(project: Path) -> None:
    case = "lowering.{cholesky,named_axes,nested_tuples,cast_of_a_mask,cast_of_a_table,floor_of_scores}*"
    done = run_conformance(project, "run", "--twins", "--only", CELL, "--case", case)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "11 of 11 wrong twins caught" in done.stdout
    lines = (project / "reports" / "twins" / CELL / "records.jsonl").read_text(encoding="utf-8").splitlines()
    found = {each["case"].removeprefix("lowering."): each for each in map(json.loads, lines)}
    assert {each["verdict"] for each in found.values()} == {"wrong", "raises", "crash"}
    died = found["cast_of_a_table[script]~CastsConstant"]
    assert (died["stage"], died["signal"]) == ("convert", "SIGSEGV")
    assert _blamed(died) == ("torch.aten.to.dtype", "return x * self.table.to(x.dtype)")
