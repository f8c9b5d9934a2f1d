"""What a cell's ledger keeps of an earlier run, and what it forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.artifacts import write_json, write_records
from conformance.incell import records as schema
from conformance.ledger import Ledger
from conformance.plan import CaseFile

CELL = "torch2.13.0-py3.11-cpu-linux_x86_64"


def _file(family: str, name: str) -> CaseFile:
    return CaseFile(family=family, path=Path(f"/cases/{family}/test_{name}.py"), root=Path("/cases"), case=f"{family}.{name}")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Of a run in which one file died while it was collected, and no environment could be made for another."""
    dead = schema.blank(CELL, "init.dead", family="init", verdict="crash", stage="collect")
    absent = schema.blank(CELL, "rope.absent", family="rope", verdict="error", stage="install")
    write_records(tmp_path / "cell" / "records.jsonl", [dead, absent])
    files = [{"case": record["case"], "family": record["family"]} for record in (dead, absent)]
    write_json(tmp_path / "cell" / "collected.json", {"schema": 1, "cell": CELL, "cases": [], "files": files})
    found = Ledger(CELL, tmp_path / "cell", tmp_path / "work", [tmp_path])
    found.load(fresh=False)
    return found


def _kept(ledger: Ledger) -> list[str]:
    ledger.carry_over([])
    return [record["case"] for record in ledger.file_records]


def test_what_a_run_was_not_about_stays(ledger: Ledger) -> None:
    assert _kept(ledger) == ["init.dead", "rope.absent"]


def test_once_there_is_an_environment_none_is_missing(ledger: Ledger) -> None:
    ledger.installed()
    assert _kept(ledger) == ["init.dead"]


def test_a_file_that_was_collected_stands_for_itself(ledger: Ledger) -> None:
    ledger.collected([_file("init", "dead")])
    assert _kept(ledger) == ["rope.absent"]
