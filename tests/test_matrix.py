"""A small real matrix, end to end: three torch releases on three devices, each record accounted for, judged and shown."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import project_with, records_of, run_conformance

from conformance.cells import this_platform

pytestmark = [pytest.mark.slow, pytest.mark.skipif(this_platform() != "linux_x86_64", reason="torch-xla has wheels for Linux x86-64 only")]

CPU = ["torch2.11.0-py3.11-cpu-linux_x86_64", "torch2.13.0-py3.11-cpu-linux_x86_64"]
META, XLA = "torch2.13.0-py3.11-meta-linux_x86_64", "torch2.9.0-py3.11-xla-linux_x86_64"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with(tmp_path_factory.mktemp("matrix"), families=["init"])


@pytest.fixture(scope="module")
def ran(project: Path) -> subprocess.CompletedProcess[str]:
    only = [argument for cell in (*CPU, META, XLA) for argument in ("--only", cell)]
    return run_conformance(project, "matrix", *only)


def _collected(project: Path, cell: str) -> dict:
    return json.loads((project / "reports" / "results" / cell / "collected.json").read_text(encoding="utf-8"))


def test_the_matrix_is_as_expected(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "as expected: 4 cells judged, 0 findings" in ran.stdout


@pytest.mark.parametrize("cell", [*CPU, META, XLA])
def test_planned_is_recorded_once(ran: subprocess.CompletedProcess[str], project: Path, cell: str) -> None:
    planned = sorted(entry["case"] for entry in _collected(project, cell)["cases"])
    assert planned
    assert sorted(record["case"] for record in records_of(project, cell)) == planned


@pytest.mark.parametrize("cell", [*CPU, META, XLA])
def test_controls_are_in_order(ran: subprocess.CompletedProcess[str], project: Path, cell: str) -> None:
    facts = json.loads((project / "reports" / "results" / cell / "environment.json").read_text(encoding="utf-8"))
    assert facts["controls"] == {"ok": True, "off": []}
    assert facts["device"]["probe"] == "ok"
    installed = {name: {line.partition("==")[0] for line in each["freeze"]} for name, each in facts["environments"].items()}
    assert {"torch", "pytest", "pytest-xdist"} <= installed["base"]
    assert not installed["base"] & {"pandas", "nox", "torch-conformance", "transformers"}


def test_the_report_says_which_bits_change(ran: subprocess.CompletedProcess[str], project: Path) -> None:
    page = re.sub(r"<[^>]+>", "", (project / "reports" / "site" / "bits.html").read_text(encoding="utf-8"))
    assert re.search(r"float32 trunc_normal_ changes its bits at 2\.13\.0", page)
    assert not re.search(r"(?<!b)float32 normal_ changes its bits", page)


def test_xla_cases_say_what_ran_on_the_device(ran: subprocess.CompletedProcess[str], project: Path) -> None:
    records = {record["case"]: record for record in records_of(project, XLA)}
    assert records["init.initialiser_repeats[float32-normal_]"]["device_ops"]["on"] > 0
    fell_back = records["init.initialiser_repeats[float32-orthogonal_]"]
    assert (fell_back["verdict"], "aten::linalg_qr" in fell_back["device_ops"]["fallback"]) == ("unexercised", True)


def test_seeds_really_differ_on_xla(ran: subprocess.CompletedProcess[str], project: Path) -> None:
    case = "init.initialiser_repeats[float32-normal_]"
    bits = []
    for cell in (CPU[1], XLA):
        record = next(record for record in records_of(project, cell) if record["case"] == case)
        bits.append(next(observed["digest"] for observed in record["observations"].values()))
    assert bits[0] != bits[1]


def test_what_needs_values_is_unsupported_on_meta(ran: subprocess.CompletedProcess[str], project: Path) -> None:
    records = records_of(project, META)
    assert {record["verdict"] for record in records} <= {"pass", "unsupported"}
    assert any(record["verdict"] == "pass" and (record["device_ops"] or {}).get("on") for record in records)


def test_a_second_run_keeps_everything(ran: subprocess.CompletedProcess[str], project: Path) -> None:
    before = {cell: records_of(project, cell) for cell in (*CPU, XLA)}
    again = run_conformance(project, "run", *(argument for cell in before for argument in ("--only", cell)))
    assert again.returncode == 0
    assert again.stderr.count("kept)") == len(before)
    assert {cell: records_of(project, cell) for cell in before} == before
