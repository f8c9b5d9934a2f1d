"""The built-in families in real cells of three releases: as expected, agreeing with tests/truth, every wrong twin caught."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from agreement import compare, rows, verdicts_of
from conftest import project_with, records_of, run_conformance

from conformance.cells import this_platform

pytestmark = pytest.mark.slow

RELEASES = ("2.4.1", "2.11.0", "2.13.0")
FAMILIES = ("init", "fallbacks", "mps", "rope", "compile", "trace")

Records = dict[str, dict[str, Any]]


def _cell(release: str) -> str:
    return f"torch{release}-py3.11-cpu-{this_platform()}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with(tmp_path_factory.mktemp("families"), families=FAMILIES)


@pytest.fixture(scope="module", params=RELEASES)
def cell(project: Path, request: pytest.FixtureRequest) -> str:
    """A cell whose cases and wrong twins have run; what the gate said of it is asserted here."""
    named = _cell(request.param)
    done = run_conformance(project, "matrix", "--only", named)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "as expected: 1 cell judged, 0 findings" in done.stdout
    return named


@pytest.fixture(scope="module")
def twins(project: Path, cell: str) -> str:
    """What was said of the cell's wrong twins."""
    done = run_conformance(project, "run", "--twins", "--only", cell)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def _records(project: Path, cell: str) -> Records:
    return {record["case"]: record for record in records_of(project, cell)}


def test_every_wrong_twin_is_caught(twins: str) -> None:
    caught = re.search(r"(\d+) of (\d+) wrong twins caught", twins)
    assert caught is not None
    assert int(caught[1]) == int(caught[2]) >= 1000


def test_outcomes_agree_with_the_table(project: Path, cell: str, twins: str) -> None:
    compared = list(compare(rows(), cell, verdicts_of(project / "reports", cell)))
    assert len(compared) == 221
    assert [str(each) for each in compared if each is not None and not each.explained] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_cases(project: Path, cell: str, family: str) -> None:
    ran = {case.partition("[")[0] for case, record in _records(project, cell).items() if record["verdict"] != "unsupported"}
    assert len([name for name in ran if name.startswith(f"{family}.")]) >= 25


def test_bits_are_observed_per_initialiser_and_dtype(project: Path, cell: str) -> None:
    records = _records(project, cell)
    for case in ("init.initialiser_repeats[float32-trunc_normal_]", "init.initialiser_repeats[bfloat16-normal_]"):
        bits = records[case]["observations"]["bits"]
        assert (bits["kind"], bits["shape"], len(bits["digest"])) == ("tensor", [40, 24], 16)
    float32 = [record for case, record in records.items() if case.startswith("init.initialiser_repeats[float32")]
    assert len({record["observations"]["bits"]["digest"] for record in float32}) == len(float32) == 9


@pytest.mark.parametrize("subject", ["gpt", "opt"])
def test_each_variation_of_a_subject_is_named(project: Path, cell: str, subject: str) -> None:
    observed = _records(project, cell)[f"trace.subject_trace_generalizes[{subject}]"]["observations"]
    assert observed["variations"]["value"].count("=ok") >= 6
    assert observed["first_failing"]["value"] == "none"
    assert observed["tracer_warnings"]["better"] == "lower"
