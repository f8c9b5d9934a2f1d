"""Results of several machines in one folder: equal facts once, shards united, and what disagrees kept side by side."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.artifacts import Problem, encode, read_records, read_table, record_key, write_chunks, write_json
from conformance.cells import Cell
from conformance.contributions import ARTIFACTS, Contribution, case_key, cell_folders, listed_cases, parse_cell, read_contribution, roots
from conformance.errors import ConfigError
from conformance.incell.artifacts import FOLDER


@dataclass(frozen=True)
class MergeReport:
    """What a merge came to: cells that hold results, the variants of cells in conflict, and what could not be read.

    `repeated` counts the folders that said the same of a cell; `absent` are the planned cells of which nothing came.
    """

    into: Path
    cells: list[str] = field(default_factory=list)
    conflicts: dict[str, list[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    repeated: dict[str, int] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """5 when machines disagree or something was not readable, else 0."""
        return 5 if self.conflicts or self.problems else 0

    def lines(self) -> list[str]:
        """The report for a terminal."""
        told = [f"{len(self.cells)} cells under {self.into / 'results'}"]
        for cell, variants in self.conflicts.items():
            told.append(f"conflict: {cell} has {len(variants)} different results, kept under {self.into / 'conflicts' / cell}:")
            told += [f"    {variant}" for variant in variants]
            told.append("    compare them, delete those that are wrong, and run conformance collect again")
        told += [f"unreadable: {problem}" for problem in self.problems]
        told += [f"repeated: {cell} came {times} times with equal results, and counts once" for cell, times in self.repeated.items()]
        return told + [f"missing: {cell} was planned, and nothing that can be read came of it" for cell in self.absent]


def collect(sources: Sequence[Path], into: Path) -> MergeReport:
    """Merges the results in `sources` and in `into` itself, under `into`; the order of sources does not matter, nor does doing it twice.

    A source is a folder of reports, of results, of one cell, or a folder of such folders. Raises ConfigError for one that does not exist.
    """
    absent = [str(source) for source in sources if not source.is_dir()]
    if absent:
        raise ConfigError(f"there is no folder {', '.join(absent)}: give folders that `conformance run` wrote, or one of a single cell")
    problems: list[Problem] = []
    folders: dict[Cell, list[Place]] = {}
    plans: list[dict[str, Any]] = []
    for source in dict.fromkeys([into, *sources]):
        _gather(source, source == into, folders, plans, problems)
    merged: dict[Cell, int] = {}
    conflicts: dict[str, list[str]] = {}
    for cell in sorted(folders, key=lambda cell: cell.sort_key):
        # one cell after the other, so that only one of them is in memory
        contributions = [each for place in folders[cell] if (each := _read(place, problems)) is not None]
        if not contributions:
            continue
        merged[cell] = _repetitions(contributions, into)
        united = _unite(contributions)
        if united is None:
            conflicts[str(cell)] = _put_aside(contributions, into)
        else:
            _write(united, into / "results" / str(cell))
            _copy_kept(contributions, into / "results" / str(cell))
            shutil.rmtree(into / "conflicts" / str(cell), ignore_errors=True)  # one variant is left of a conflict: it is settled
    plan = _unite_plans(plans) if plans else {"cells": []}
    if plans:
        write_json(into / "plan.json", plan)
    planned = [str(row["cell"]) for row in plan["cells"] if row.get("cell")]
    lost = [name for name in planned if parse_cell(name) not in merged]
    cells = [str(cell) for cell in merged if str(cell) not in conflicts]
    repeated = {str(cell): times for cell, times in merged.items() if times > 1}
    return MergeReport(into, sorted(cells), conflicts, sorted(set(problems)), repeated, lost)


def _repetitions(contributions: Sequence[Contribution], into: Path) -> int:
    """How many folders, the merge's own apart, said the same of one cell, at most."""
    outside = [each for each in contributions if not each.folder.is_relative_to(into)]
    return len(outside) if len(outside) < 2 else max(Counter(each.digest for each in outside).values())


@dataclass(frozen=True)
class Place:
    """A folder of one cell: whether it is one variant of a conflict, and in which root of its source it lies."""

    folder: Path
    held: bool
    root: Path


def _read(place: Place, problems: list[Problem]) -> Contribution | None:
    told: list[Problem] = []
    contribution = read_contribution(place.folder, place.held, told)
    problems += [Problem(f"{place.root}: {problem.path}", problem.line, problem.message) for problem in told]
    return contribution


def _gather(source: Path, own: bool, folders: dict[Cell, list[Place]], plans: list[dict[str, Any]], problems: list[Problem]) -> None:
    """Adds to `folders` those of each cell in a source, and its plans to `plans`."""
    found = 0
    for root in [source] if own else roots(source):
        plan, told = read_table(root / "plan.json")
        plans += [plan] if plan is not None else []
        problems += [Problem(f"{root}: {problem.path}", problem.line, problem.message) for problem in told]
        for folder, held in cell_folders(root):
            found += 1
            place = Place(folder, held, root)
            cell = parse_cell((folder.parent if held else folder).name)
            if cell is None:  # its files must say
                contribution = _read(place, problems)
                cell = contribution.cell if contribution is not None else None
            if cell is not None:
                folders.setdefault(cell, []).append(place)
    if not found and not own:
        problems.append(Problem(f"{source}: results", 0, "this source holds no results of any cell"))


def _unite(contributions: Sequence[Contribution]) -> Contribution | None:
    """All contributions as one, None when two of them say different things about one cell."""
    known = [each for each in contributions if each.environment]
    records = _union((each.records for each in contributions), record_key)
    controls = _union((each.controls for each in contributions), record_key)
    cases = _union((listed_cases(each) for each in contributions), case_key)
    if len({each.facts for each in known}) > 1 or records is None or controls is None or cases is None:
        return None
    environment = min(
        (each.environment for each in known), key=lambda facts: (str((facts or {}).get("started_at")), encode(facts)), default=None
    )
    tables = sorted((each.collected for each in contributions if each.collected is not None), key=encode)
    collected = tables[0] if tables else None
    if collected is not None and any(table != collected for table in tables):
        collected = {**collected, "cases": cases, "files": _files(tables)}
    first = contributions[0]
    return Contribution(first.cell, first.folder, environment, collected, records, controls)


def _union(parts: Iterable[Iterable[dict[str, Any]]], key: Any) -> list[dict[str, Any]] | None:
    """The rows of all parts, each once, in the order of their keys; None when two rows of one key differ."""
    rows: dict[Any, dict[str, Any]] = {}
    for part in parts:
        for row in part:
            if rows.setdefault(key(row), row) != row:
                return None
    return [rows[each] for each in sorted(rows)]


def _files(tables: Iterable[dict[str, Any]]) -> list[Any]:
    lists = (table.get("files") for table in tables)
    found = {encode(entry): entry for listed in lists if isinstance(listed, list) for entry in listed}
    return [found[each] for each in sorted(found)]


def _write(united: Contribution, folder: Path) -> None:
    """Writes one cell so that a reader sees each file whole: the list of cases first, since it alone tells what is still missing."""
    for name, table in (("collected.json", united.collected), ("environment.json", united.environment)):
        if table is not None:
            _keep_unreadable(folder / name)
            write_json(folder / name, table)
    for name, records in (("records.jsonl", united.records), ("controls.jsonl", united.controls)):
        _keep_unreadable(folder / name)
        write_chunks(folder / name, (encode(record) + b"\n" for record in records))  # sound, since they were read


def _copy_kept(contributions: Sequence[Contribution], folder: Path) -> None:
    """What cases kept beside their records goes along with them."""
    for each in contributions:
        kept = each.folder / FOLDER
        if kept.is_dir() and not kept.is_symlink() and each.folder != folder:
            shutil.copytree(kept, folder / FOLDER, dirs_exist_ok=True, symlinks=True)


def _keep_unreadable(path: Path) -> None:
    """Copies a file that this tool cannot read whole to a name beside it, before it is written anew without those lines."""
    told = (read_records if path.suffix == ".jsonl" else read_table)(path)[1]
    if told and path.is_file():
        content = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        shutil.copy2(path, path.with_name(f"{path.name}.{content}.unreadable"))


def _put_aside(contributions: Sequence[Contribution], into: Path) -> list[str]:
    """Keeps every variant of a cell under `conflicts`, and takes the cell out of `results`; returns the variants' names."""
    cell = contributions[0].cell
    parent, own = into / "conflicts" / str(cell), into / "results" / str(cell)
    distinct = {each.digest: each for each in contributions if each.folder.parent != parent}
    for digest, each in sorted(distinct.items()):
        absorbed = any(each is not other and each.within(other) and not other.within(each) for other in contributions)
        if (parent / digest).exists() or (absorbed and each.folder != own):
            continue
        fresh = parent / f".{digest}.tmp"
        shutil.rmtree(fresh, ignore_errors=True)
        _write(each, fresh)
        fresh.replace(parent / digest)
    for each in contributions:
        if each.folder == own:
            _move_rest(own, parent / each.digest)
    return sorted(path.name for path in parent.iterdir() if not path.name.startswith("."))


def _move_rest(own: Path, variant: Path) -> None:
    """Takes a cell's folder out of the results; what it holds beside the artifacts goes along to its variant."""
    for path in sorted(own.iterdir()):
        if path.name not in ARTIFACTS and not (variant / path.name).exists():
            path.replace(variant / path.name)
    gone = variant.with_name(f".{own.name}.tmp")
    shutil.rmtree(gone, ignore_errors=True)
    own.replace(gone)
    shutil.rmtree(gone)


def _unite_plans(plans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One plan that names every cell and file; where two plans differ, the first in the order of their texts speaks."""
    united: dict[str, Any] = _least((name, value) for plan in plans for name, value in plan.items())
    for name, key in (("cells", "cell"), ("files", "case")):
        rows = (row for plan in plans if isinstance(plan.get(name), list) for row in plan[name] if isinstance(row, dict))
        listed = _least((str(row.get(key)), row) for row in rows)
        united[name] = [listed[each] for each in sorted(listed, key=_plan_order)]
    return united


def _least(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Name -> the value whose JSON text comes first, whatever the order of `pairs`."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = min(found.get(name, value), value, key=encode)
    return found


def _plan_order(name: str) -> Any:
    cell = parse_cell(name)
    return (0, cell.sort_key) if cell is not None else (1, name)
