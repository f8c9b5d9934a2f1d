"""The built-in families in a real cell: they catch their wrong twins, and what they observe can be compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import project_with, records_of, run_conformance

from conformance.cells import this_platform

pytestmark = pytest.mark.slow

CELL = f"torch2.13.0-py3.11-cpu-{this_platform()}"
FAMILIES = ["init", "trace"]
#: orthogonal_ decomposes by a kernel that no release has in low precision.
UNSUPPORTED = {"init.initialiser_repeats[bfloat16-orthogonal_]", "init.initialiser_repeats[float16-orthogonal_]"}

Records = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The records of the families on their right idioms, by case."""
    project = project_with(tmp_path_factory.mktemp("families"), families=FAMILIES)
    done = run_conformance(project, "run", "--only", CELL)
    assert done.returncode == 0, done.stderr
    return {record["case"]: record for record in records_of(project, CELL)}


def test_every_wrong_twin_is_caught(tmp_path: Path) -> None:
    done = run_conformance(project_with(tmp_path, families=FAMILIES), "run", "--twins", "--only", CELL)
    assert done.returncode == 0, done.stdout + done.stderr
    caught = re.search(r"(\d+) of (\d+) wrong twins caught", done.stdout)
    assert caught is not None
    assert int(caught[1]) == int(caught[2]) >= 200


def test_right_idioms_pass(records: Records) -> None:
    deviating = {case: record["reason"] for case, record in records.items() if record["verdict"] not in ("pass", "unsupported")}
    assert deviating == {}
    assert {case for case, record in records.items() if record["verdict"] == "unsupported"} == UNSUPPORTED


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_cases(records: Records, family: str) -> None:
    assert len({case.partition("[")[0] for case in records if case.startswith(f"{family}.")}) >= 30


def test_bits_are_observed_per_initialiser_and_dtype(records: Records) -> None:
    for case in ("init.initialiser_repeats[float32-trunc_normal_]", "init.initialiser_repeats[bfloat16-normal_]"):
        bits = records[case]["observations"]["bits"]
        assert (bits["kind"], bits["shape"], len(bits["digest"])) == ("tensor", [40, 24], 16)
    float32 = [record for case, record in records.items() if case.startswith("init.initialiser_repeats[float32")]
    assert len({record["observations"]["bits"]["digest"] for record in float32}) == len(float32) == 9


@pytest.mark.parametrize("subject", ["gpt", "opt"])
def test_each_variation_of_a_subject_is_named(records: Records, subject: str) -> None:
    observed = records[f"trace.subject_trace_generalizes[{subject}]"]["observations"]
    assert observed["variations"]["value"].count("=ok") >= 6
    assert observed["first_failing"]["value"] == "none"
    assert observed["tracer_warnings"]["better"] == "lower"
