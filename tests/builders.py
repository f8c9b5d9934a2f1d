"""Results made by hand, in memory and on disk, for tests of whatever reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.cells import Cell
from conformance.incell.records import blank
from conformance.results import CellResult, ResultSet, write_json, write_records

Record = dict[str, Any]


def cell(torch: str, device: str = "cpu", python: str = "3.11", platform: str = "linux_x86_64", tag: str = "") -> Cell:
    """A cell of one release."""
    return Cell(torch=torch, python=python, device=device, platform=platform, tag=tag)


def record(where: Cell | str, case: str, verdict: str = "pass", **fields: Any) -> Record:
    """A complete record; `where` may be a bare release."""
    named = cell(where) if isinstance(where, str) else where
    return blank(str(named), case, **{"verdict": verdict, "started_at": "2026-11-30T03:00:00+00:00", "duration_s": 0.25, **fields})


def environment(where: Cell, **fields: Any) -> dict[str, Any]:
    """The facts of a sound cell, `fields` laid over them."""
    facts: dict[str, Any] = {
        "schema": 1,
        "tool": "0.1.0",
        "cell": str(where),
        "status": "ok",
        "reason": "",
        "torch": {"version": f"{where.torch}+cpu", "git_version": "abc123", "cuda": None, "hip": None},
        "python": {"version": f"{where.python}.7", "implementation": "CPython"},
        "platform": {"system": "Linux", "release": "6.1", "os": "Debian GNU/Linux 12", "machine": "x86_64"},
        "cpu": {"model": "Some CPU", "flags": ["avx2"], "capability": "AVX2"},
        "device": {"type": where.device, "name": "cpu", "driver": None, "probe": "ok"},
        "environments": {"base": {"requirements": [], "freeze": ["numpy==1.26.4", f"torch=={where.torch}"]}},
        "controls": {"ok": True, "off": []},
        "started_at": "2026-11-30T03:00:00+00:00",
    }
    return {**facts, **fields}


def collected(records: Iterable[Record], titles: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What collection would have listed for `records`: cases, and of records at stage install the files."""
    listed = list(records)
    files = [{"case": entry["case"], "family": entry["family"]} for entry in listed if entry["stage"] == "install"]
    whole = [entry for entry in listed if entry["stage"] != "install"]
    cases = {entry["case"]: {name: entry[name] for name in ("case", "family", "subject", "environment")} for entry in whole}
    for case, title in (titles or {}).items():
        cases[case]["title"] = title
    return {"schema": 1, "cases": list(cases.values()), "files": files}


def result(*cells: tuple[Cell, list[Record]], titles: Mapping[str, str] | None = None, **fields: Any) -> ResultSet:
    """A result set in memory; `fields` go to each environment."""
    made = [CellResult(where, environment(where, **fields), collected(rows, titles), rows) for where, rows in cells]
    return ResultSet(sorted(made, key=lambda each: each.cell.sort_key))


def grid(rows: Mapping[str, Mapping[str, str]], device: str = "cpu", **fields: Any) -> ResultSet:
    """A result set from case -> release -> verdict; what is not pass gets a reason."""
    releases = list(dict.fromkeys(release for outcomes in rows.values() for release in outcomes))
    cells = []
    for release in releases:
        where = cell(release, device)
        have = [(case, outcomes[release]) for case, outcomes in rows.items() if release in outcomes]
        cells.append(
            (where, [record(where, case, verdict, reason="" if verdict == "pass" else f"{verdict} here") for case, verdict in have])
        )
    return result(*cells, **fields)


def write_cell(reports: Path, where: Cell, records: list[Record], **fields: Any) -> Path:
    """The folder that a run of one cell leaves under `reports`; returns it."""
    folder = reports / "results" / str(where)
    write_json(folder / "environment.json", environment(where, **fields))
    write_json(folder / "collected.json", collected(records))
    write_records(folder / "records.jsonl", records)
    write_records(folder / "controls.jsonl", [])
    return folder


def write_plan(reports: Path, cells: Iterable[Cell], files: Iterable[str] = ("init.inits",)) -> None:
    """A plan of `cells` in which each of `files` is a case file, as `family.stem`."""
    listed = [{"family": file.partition(".")[0], "file": f"cases/{file.replace('.', '/test_')}.py", "case": file} for file in files]
    write_json(reports / "plan.json", {"schema": 1, "cells": [{"cell": str(each)} for each in cells], "files": listed})


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under `folder` by its relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def line(**fields: Any) -> bytes:
    """One raw line of a records file, whatever it holds."""
    return json.dumps(fields).encode() + b"\n"
