"""Family trace in a real cell: it catches its wrong twins, and tells a wrong answer from a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import project_with, records_of, run_conformance
from test_cases_init import CELL


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The records of family trace on its right idioms, by case."""
    project = project_with(tmp_path_factory.mktemp("trace"), families=["trace", "control"])
    done = run_conformance(project, "run", "--only", CELL, "--family", "trace")
    assert done.returncode == 0, done.stderr
    return {record["case"]: record for record in records_of(project, CELL)}


@pytest.mark.slow
def test_every_wrong_twin_is_caught(tmp_path: Path) -> None:
    project = project_with(tmp_path, families=["trace", "control"])
    done = run_conformance(project, "run", "--twins", "--only", CELL, "--family", "trace")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wrong twins caught" in done.stdout + done.stderr


@pytest.mark.slow
def test_right_idioms_pass(records: dict[str, dict[str, Any]]) -> None:
    assert {case: record["reason"] for case, record in records.items() if record["verdict"] != "pass"} == {}
    assert len({case.partition("[")[0] for case in records}) >= 14


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["gpt", "opt"])
def test_each_variation_of_a_subject_is_named(records: dict[str, dict[str, Any]], subject: str) -> None:
    observed = records[f"trace.subject_trace_generalizes[{subject}]"]["observations"]
    assert observed["variations"]["value"].count("=ok") >= 6
    assert observed["first_failing"]["value"] == "none"
    assert observed["tracer_warnings"]["better"] == "lower"
