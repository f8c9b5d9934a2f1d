"""Contributions: what one folder of results says about one cell, and where such folders lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.artifacts import Problem, Record, encode, read_records, read_table
from conformance.cells import Cell

ARTIFACTS = ("environment.json", "collected.json", "records.jsonl", "controls.jsonl")


@dataclass(frozen=True)
class Contribution:
    """What one folder says about one cell."""

    cell: Cell
    folder: Path
    environment: dict[str, Any] | None
    collected: dict[str, Any] | None
    records: list[Record]
    controls: list[Record]

    @property
    def digest(self) -> str:
        """The first 12 hex digits of the SHA-256 of its content, in which the order of records does not count."""
        rows = [sorted(encode(record).decode() for record in records) for records in (self.records, self.controls)]
        return hashlib.sha256(encode([self.environment, self.collected, rows])).hexdigest()[:12]

    @property
    def facts(self) -> bytes:
        """Its environment as far as shards of one cell must agree on it: all but the moment when it was noted."""
        return encode({name: value for name, value in (self.environment or {}).items() if name != "started_at"})

    def within(self, other: Contribution) -> bool:
        """Whether `other` says all that this one says."""
        same = not self.environment or self.environment == other.environment
        pairs = ((self.records, other.records), (self.controls, other.controls), (listed_cases(self), listed_cases(other)))
        return same and all({encode(row) for row in mine} <= {encode(row) for row in theirs} for mine, theirs in pairs)


def roots(source: Path) -> list[Path]:
    """The folder itself when it is one cell's or one of reports; else the folders in it, as of results or of downloaded artifacts."""
    reports = any((source / name).exists() for name in ("results", "conflicts", "plan.json"))
    if reports or _holds_artifacts(source):
        return [source]
    return sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith("."))


def cell_folders(root: Path) -> Iterator[tuple[Path, bool]]:
    """Each folder of one cell in `root`, and whether it is one variant of a conflict."""
    if _holds_artifacts(root):
        yield root, False
    for pattern, held in (("results/*", False), ("conflicts/*/*", True)):
        for folder in sorted(root.glob(pattern)):
            if _holds_artifacts(folder) and not folder.name.startswith("."):
                yield folder, held


def _holds_artifacts(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ARTIFACTS)


def read_contribution(folder: Path, held: bool, problems: list[Problem]) -> Contribution | None:
    """What `folder` holds; what cannot be read of it goes to `problems`.

    None when it does not say which cell it is, or is of another schema: then one problem says so for all of it.
    """
    environment, told = read_table(folder / "environment.json")
    problems += told
    if environment is not None and told:
        return None
    collected, told = read_table(folder / "collected.json")
    problems += told
    records, told = read_records(folder / "records.jsonl")
    problems += told
    controls, told = read_records(folder / "controls.jsonl")
    problems += told
    names = [folder.parent.name] if held else [folder.name, str((environment or {}).get("cell")), *(row["cell"] for row in records[:1])]
    cell = next((cell for cell in map(parse_cell, names) if cell is not None), None)
    if cell is None:
        problems.append(Problem(folder.name, 0, "neither the folder's name nor its files say which cell it is: name the folder after it"))
        return None
    foreign = [row for row in (*records, *controls) if row["cell"] != str(cell)]
    problems += [Problem(f"{cell}/records.jsonl", 0, f"{len(foreign)} records of another cell are left out")] if foreign else []
    mine = [[row for row in rows if row["cell"] == str(cell)] for rows in (records, controls)]
    return Contribution(cell, folder, environment, collected, mine[0], mine[1])


def parse_cell(name: str) -> Cell | None:
    """The cell that `name` names, None when it names none."""
    try:
        return Cell.parse(name)
    except ValueError:
        return None


def listed_cases(contribution: Contribution) -> list[dict[str, Any]]:
    """The entries of its list of collected cases."""
    listed = (contribution.collected or {}).get("cases")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def case_key(entry: dict[str, Any]) -> str:
    """What names an entry of a list of collected cases."""
    return str(entry.get("case"))
