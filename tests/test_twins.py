"""Which wrong twins count as caught, as hidden behind their case, and as escaped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.results import write_records
from conformance.twins import escaped
from tests.builders import record

CELL = "torch2.4.1-py3.11-cpu-linux_x86_64"
TWIN = "compile.whole~breaks"


def write(reports: Path, own: str | None, found: str | None, stated: str = "wrong") -> None:
    """A case that came to `own` and its twin that came to `found`; None leaves the record out."""
    for folder, case, verdict in (("results", "compile.whole", own), ("twins", TWIN, found)):
        (reports / folder / CELL).mkdir(parents=True)
        write_records(reports / folder / CELL / "records.jsonl", [] if verdict is None else [record("2.4.1", case, verdict)])
    collected = {"schema": 1, "cases": [{"case": TWIN, "expected": stated}]}
    (reports / "twins" / CELL / "collected.json").write_text(json.dumps(collected))


@pytest.mark.parametrize(
    ("own", "found", "counts"),
    [
        ("pass", "wrong", (1, 0, 0, 0)),
        ("pass", "pass", (0, 0, 0, 1)),
        ("pass", "unsupported", (0, 1, 0, 0)),
        ("pass", "raises", (0, 0, 0, 1)),
        ("raises", "raises", (0, 0, 1, 0)),
        ("crash", "raises", (0, 0, 0, 1)),
        ("unsupported", "pass", (0, 0, 0, 1)),
        (None, "raises", (0, 0, 0, 1)),
        ("pass", None, (0, 0, 0, 1)),
    ],
)
def test_a_twin_is_caught_hidden_or_escaped(tmp_path: Path, own: str | None, found: str | None, counts: tuple[int, int, int, int]) -> None:
    write(tmp_path, own, found)
    catch = escaped(tmp_path, [CELL])
    assert (catch.caught, catch.unsupported, catch.hidden, len(catch.escaped)) == counts
    assert catch.exit_code == (1 if catch.escaped else 0 if catch.caught else 5)


def test_what_is_hidden_is_told(tmp_path: Path) -> None:
    write(tmp_path, "raises", "raises")
    assert escaped(tmp_path, [CELL]).lines() == [
        "0 of 0 wrong twins caught, 0 not supported where they ran, 1 hidden behind a deviation of their case"
    ]
