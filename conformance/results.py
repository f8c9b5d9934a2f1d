"""The result set on disk: what was planned, what was measured, and every hole between the two."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance import publication
from conformance import published as packing
from conformance.artifacts import Problem, Record, read_records, read_table, write_json, write_records
from conformance.cells import Cell
from conformance.errors import ConfigError
from conformance.incell.records import blank
from conformance.incell.verdicts import Stage, Verdict
from conformance.publication import Publication

__all__ = ["CellResult", "Problem", "Record", "ResultSet", "read", "read_records", "write_json", "write_records"]

#: The folder of the published columns, beside the results of runs.
PUBLISHED = "published"
#: The family of the controls: their records stay out of roll-up, table and gate.
CONTROL = "control"


@dataclass(frozen=True)
class CellResult:
    """All that one cell left: its facts, the cases it must have, a record for each of them, and what could not be read."""

    cell: Cell
    environment: dict[str, Any] = field(default_factory=dict)
    collected: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    controls: list[Record] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    #: Set where these are the published results of the cell, read from their packed file.
    publication: Publication | None = None

    @property
    def grey(self) -> bool:
        """Whether the device's probe failed: the cell is shown, and neither judged nor published."""
        return self.environment.get("status") == "probe-failed"

    @property
    def controls_off(self) -> list[str]:
        """The control cases that came out otherwise than they must, or not at all; empty for a cell that can be trusted."""
        lost = [record["case"] for record in self.records if record["family"] == CONTROL and record["verdict"] == Verdict.MISSING.value]
        controls = self.environment.get("controls")
        if not isinstance(controls, dict) or (controls.get("ok", True) and not controls.get("off")):
            return lost
        off = controls.get("off")
        return lost + ([str(name) for name in off] if isinstance(off, list) and off else ["unnamed control"])

    def fact(self, *path: str) -> str:
        """The text of one value of environment.json, as `fact("torch", "version")`; empty where it is not known."""
        value: Any = self.environment
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return "" if value is None or isinstance(value, (dict, list)) else str(value)

    def outcomes(self) -> dict[str, Record]:
        """Case -> the record of its worst attempt, the earliest of equals, in the order of cases; controls are left out.

        Every call gives the same table: read it, and leave it as it is.
        """
        return self._outcomes

    @cached_property
    def _outcomes(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for record in self.records:
            if record["family"] == CONTROL:
                continue
            held = found.setdefault(record["case"], record)
            if held is not record and _badness(record) < _badness(held):
                found[record["case"]] = record
        return dict(sorted(found.items()))

    def case_ids(self) -> set[str]:
        """The cases that were collected: any other record stands for a whole file."""
        return {entry["case"] for entry in _entries(self.collected.get("cases"))}

    def file_cases(self) -> dict[str, str]:
        """Case -> the record's case that stands for its whole file where that could not be collected, as collection noted it."""
        entries = _entries(self.collected.get("cases"))
        return {entry["case"]: entry["file_case"] for entry in entries if isinstance(entry.get("file_case"), str)}

    def titles(self) -> dict[str, str]:
        """Case -> the first line of its docstring, where collection noted one."""
        entries = _entries(self.collected.get("cases"))
        return {entry["case"]: entry["title"] for entry in entries if isinstance(entry.get("title"), str)}


@dataclass(frozen=True)
class ResultSet:
    """Cells in the order of their columns. `conflicts` names the variants of each cell on which machines disagree."""

    cells: list[CellResult] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)
    conflicts: dict[str, list[str]] = field(default_factory=dict)
    #: The state of every published column, also of those whose newer results are shown in their place.
    publications: dict[str, Publication] = field(default_factory=dict)

    def all_problems(self) -> list[Problem]:
        """The problems of the set and of each of its cells, without repetition, in order."""
        return sorted({*self.problems, *(problem for cell in self.cells for problem in cell.problems)})

    def judged(self) -> Iterator[CellResult]:
        """The cells that count: their device answered the probe and their controls came out right."""
        return (cell for cell in self.cells if not cell.grey and not cell.controls_off)


def read(reports: Path, cells: Collection[str] | None = None, *, published: bool = False) -> ResultSet:
    """All that lies under `reports`, or the named cells of it, with a `missing` record for whatever was planned and did not come.

    Cells on disk that the plan does not name are read too: pass `cells` to leave them out. Packed columns in the folder itself are read as
    any other cell, and with `published` those under `reports/published`, where no results of the same cell are at hand. `reports` may also
    be one packed column. Raises ConfigError when there is nothing of that name.
    """
    if reports.is_file() and reports.name.endswith(packing.SUFFIX):
        states, problems = publication.read(reports.parent)
        return ResultSet(list(_published({reports.name.removesuffix(packing.SUFFIX): reports}, states, problems)), None, problems)
    if not reports.is_dir():
        raise ConfigError(f"there is no folder of results at {reports}: give one that `conformance run` or `conformance collect` wrote")
    plan, problems = read_table(reports / "plan.json")
    conflicts = _conflicts(reports / "conflicts", cells)
    planned = _cells((str(entry.get("cell")) for entry in _entries((plan or {}).get("cells"), "cell")), "plan.json", problems)
    found = _cells(_folders(reports / "results"), "results", problems)
    folder = reports / PUBLISHED if published and (reports / PUBLISHED).is_dir() else reports
    states, unread = publication.read(folder)
    problems += unread
    here = {*conflicts, *map(str, found)}
    packed = {name: path for name, path in _packed(folder, states).items() if name not in here and (cells is None or name in cells)}
    wanted = {cell for cell in (*planned, *found) if (cells is None or str(cell) in cells) and str(cell) not in packed}
    shared: dict[str, dict[str, Any]] = {}
    read_cells = [_read_cell(reports, cell, plan, cell in planned, conflicts, shared) for cell in wanted]
    read_cells += _published(packed, states, problems)
    return ResultSet(sorted(read_cells, key=lambda each: each.cell.sort_key), plan, problems, conflicts, states)


def _packed(folder: Path, states: Mapping[str, Publication]) -> dict[str, Path | None]:
    """Cell id -> the file of its packed column; None for one that was held back and never published."""
    never = {name: None for name, state in states.items() if state.is_held}
    return {**never, **{path.name.removesuffix(packing.SUFFIX): path for path in sorted(folder.glob(f"*{packing.SUFFIX}"))}}


def _published(files: Mapping[str, Path | None], states: Mapping[str, Publication], problems: list[Problem]) -> Iterator[CellResult]:
    """Packed columns as cells, each with its state; what cannot be read becomes a problem, and no cell."""
    for cell in _cells(files, PUBLISHED, problems):
        path, state = files[str(cell)], states.get(str(cell), Publication(measured=""))
        tables, damage = packing.unpack(path) if path else ({}, [])
        if path and not tables:
            problems += damage
            continue
        result = CellResult(cell, **tables, problems=damage, publication=state)
        yield replace(result, records=result.records + list(_holes(result, [])))


def _read_cell(
    reports: Path,
    cell: Cell,
    plan: dict[str, Any] | None,
    planned: bool,
    conflicts: Mapping[str, list[str]],
    shared: dict[str, dict[str, Any]],
) -> CellResult:
    files = _entries((plan or {}).get("files")) if planned else []
    if str(cell) in conflicts:
        reason = f"{len(conflicts[str(cell)])} different results for this cell: see conflicts/{cell}"
        return CellResult(cell, records=[_missing(cell, entry, Stage.COLLECT, reason) for entry in files])
    result = _read_folder(reports / "results" / str(cell), cell, shared)
    holes = list(_holes(result, files if not result.collected else []))
    return CellResult(cell, result.environment, result.collected, result.records + holes, result.controls, result.problems)


def _read_folder(folder: Path, cell: Cell, shared: dict[str, dict[str, Any]]) -> CellResult:
    """What one cell left. Entries of collected cases that are as in a cell before are taken from `shared`: memory counts."""
    problems: list[Problem] = []
    tables: list[dict[str, Any]] = []
    for name in ("environment.json", "collected.json"):
        table, found = read_table(folder / name)
        tables.append({} if table is None or found else table)
        problems += found
    rows: list[list[Record]] = []
    for name in ("records.jsonl", "controls.jsonl"):
        read_rows, found = read_records(folder / name)
        foreign = [record for record in read_rows if record["cell"] != str(cell)]
        problems += found + [
            Problem(f"{cell}/{name}", 0, f"holds a record of another cell, {record['cell'][:120]}") for record in foreign[:1]
        ]
        rows.append([record for record in read_rows if record["cell"] == str(cell)])
    collected = tables[1]
    if isinstance(collected.get("cases"), list):
        collected["cases"] = [_shared(entry, shared) for entry in collected["cases"]]
    return CellResult(cell, tables[0], collected, rows[0], rows[1], problems)


def _shared(entry: Any, shared: dict[str, dict[str, Any]]) -> Any:
    """An entry with those of its fields that any reader asks for; the very table of an equal one where there is one."""
    if not isinstance(entry, dict) or not isinstance(entry.get("case"), str):
        return entry
    kept = {name: entry[name] for name in packing.CASE_FIELDS if name in entry}
    held = shared.setdefault(entry["case"], kept)
    return held if held == kept else kept


def _holes(result: CellResult, files: Iterable[dict[str, Any]]) -> Iterator[Record]:
    """A missing record for each case that was collected, and for each case file, that left no record."""
    have = {record["case"] for record in (*result.records, *result.controls)}
    status = result.fact("status")
    cause = f" ({status}: {result.fact('reason')})" if status not in ("", "ok") else ""
    expected = [(entry, Stage.RUN, f"collected, and no record came{cause}") for entry in _entries(result.collected.get("cases"))]
    expected += [(entry, Stage.COLLECT, f"not collected, and no record came{cause}") for entry in _entries(result.collected.get("files"))]
    expected += [(entry, Stage.COLLECT, f"planned, and nothing came back{cause}") for entry in files]
    for entry, stage, reason in expected:
        if entry["case"] not in have:
            have.add(entry["case"])
            yield _missing(result.cell, entry, stage, reason)


def _missing(cell: Cell, entry: Mapping[str, Any], stage: Stage, reason: str) -> Record:
    known = {name: entry[name] for name in ("family", "subject", "environment") if isinstance(entry.get(name), str)}
    return blank(str(cell), entry["case"], verdict=Verdict.MISSING.value, stage=stage.value, reason=reason, **known)


def _entries(listed: Any, name: str = "case") -> list[dict[str, Any]]:
    """The usable entries of a list in plan.json or collected.json: tables that hold `name`, or the bare names themselves."""
    if not isinstance(listed, list):
        return []
    tables = (entry if isinstance(entry, dict) else {name: entry} for entry in listed)
    return [table for table in tables if isinstance(table.get(name), str)]


def _cells(names: Iterable[str], place: str, problems: list[Problem]) -> list[Cell]:
    """The cells that `names` name, each once; what is no cell id becomes a problem."""
    cells: dict[Cell, None] = {}
    for name in names:
        try:
            cells[Cell.parse(name)] = None
        except ValueError:
            problems.append(Problem(place, 0, f"{name[:120]!r} is no cell id: left out"))
    return list(cells)


def _folders(parent: Path) -> list[str]:
    if not parent.is_dir():
        return []
    return sorted(path.name for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))


def _conflicts(folder: Path, cells: Collection[str] | None) -> dict[str, list[str]]:
    found = {name: _folders(folder / name) for name in _folders(folder) if cells is None or name in cells}
    return {name: variants for name, variants in found.items() if variants}


def _badness(record: Record) -> tuple[int, int]:
    return Verdict(record["verdict"]).severity, record["attempt"]
