"""Family init in a real cell: it catches its wrong twins, and what it observes of bits can be compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import project_with, records_of, run_conformance

CELL = "torch2.13.0-py3.11-cpu-" + ("linux_x86_64" if os.uname().sysname == "Linux" else "macos_arm64")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The records of family init on its right idioms, by case."""
    project = project_with(tmp_path_factory.mktemp("init"), families=["init", "control"])
    done = run_conformance(project, "run", "--only", CELL, "--family", "init")
    assert done.returncode == 0, done.stderr
    return {record["case"]: record for record in records_of(project, CELL)}


@pytest.mark.slow
def test_every_wrong_twin_is_caught(tmp_path: Path) -> None:
    project = project_with(tmp_path, families=["init", "control"])
    done = run_conformance(project, "run", "--twins", "--only", CELL, "--family", "init")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wrong twins caught" in done.stdout + done.stderr


@pytest.mark.slow
def test_right_idioms_pass_on_the_releases_that_are_right(records: dict[str, dict[str, Any]]) -> None:
    deviating = {case: record["reason"] for case, record in records.items() if record["verdict"] not in ("pass", "unsupported")}
    assert deviating == {}
    unsupported = {case for case, record in records.items() if record["verdict"] == "unsupported"}
    assert unsupported == {"init.initialiser_repeats[bfloat16-orthogonal_]", "init.initialiser_repeats[float16-orthogonal_]"}


@pytest.mark.slow
def test_bits_are_observed_per_initialiser_and_dtype(records: dict[str, dict[str, Any]]) -> None:
    for case in ("init.initialiser_repeats[float32-trunc_normal_]", "init.initialiser_repeats[bfloat16-normal_]"):
        bits = records[case]["observations"]["bits"]
        assert (bits["kind"], bits["shape"], len(bits["digest"])) == ("tensor", [40, 24], 16)
    digests = {
        record["observations"]["bits"]["digest"]
        for case, record in records.items()
        if case.startswith("init.initialiser_repeats[float32") and record["verdict"] == "pass"
    }
    assert len(digests) == 9


@pytest.mark.slow
def test_each_case_says_what_holds(records: dict[str, dict[str, Any]]) -> None:
    assert len({case.partition("[")[0] for case in records}) >= 14
