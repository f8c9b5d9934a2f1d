"""The ledger of one cell: what was known before, what this run adds, and the files that hold both."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance import __version__
from conformance.artifacts import Problem, Record, read_records, read_table, write_json, write_records
from conformance.incell import records as schema
from conformance.incell.artifacts import FOLDER
from conformance.incell.verdicts import Stage
from conformance.journals import Journals
from conformance.plan import CaseFile

Entry = dict[str, Any]
Identity = tuple[str, int]


#: What the plan knows of a case and its record repeats.
_PLANNED = ("family", "subject", "environment", "params")


def _sound(entries: Any, needed: Sequence[str]) -> list[Entry]:
    """The entries of a file that can be used: what a damaged one lost is collected or run again."""
    listed = entries if isinstance(entries, list) else []
    return [entry for entry in listed if isinstance(entry, dict) and all(name in entry for name in needed)]


def placeholders(case_roots: Sequence[Path]) -> dict[str, Path]:
    """Placeholder -> folder that case files are written relative to: `<cases>` for those of the tool, `<cases1>`, ... for the user's."""
    return {f"<cases{number or ''}>": root if root.is_dir() else root.parent for number, root in enumerate(case_roots)}


@dataclass
class Ledger:
    """Records by (case, attempt). `entries` are the collected cases, each with the absolute path of its file."""

    cell: str
    folder: Path
    work: Path
    case_roots: Sequence[Path]
    entries: list[Entry] = field(default_factory=list)
    records: dict[Identity, Record] = field(default_factory=dict)
    file_records: list[Record] = field(default_factory=list)
    controls: list[Record] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    #: How many records an earlier run had made and this one keeps.
    kept: int = 0
    _previous: dict[Identity, Record] = field(default_factory=dict)
    previous_collected: dict[str, Any] = field(default_factory=dict)
    previous_file_records: list[Record] = field(default_factory=list)
    previous_facts: dict[str, Any] = field(default_factory=dict)

    def load(self, *, fresh: bool) -> None:
        """Read what an earlier run left: its files, and what a run that was killed had journaled."""
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.work, ignore_errors=True)
        records = self._read("records.jsonl")
        self.controls = self._read("controls.jsonl")
        self.previous_collected = self._table(self.folder / "collected.json")
        self.previous_facts = self._table(self.folder / "environment.json")
        self.previous_collected["cases"] = _sound(self.previous_collected.get("cases"), ("case", "file", "file_case", *_PLANNED))
        self.previous_collected["files"] = _sound(self.previous_collected.get("files"), ("case",))
        file_ids = {entry["case"] for entry in self.previous_collected["files"]}
        self.previous_file_records = [record for record in records if record["case"] in file_ids]
        self._previous = {(record["case"], record["attempt"]): record for record in records if record["key"]}
        for folder in sorted(self.work.glob("*")):
            self._absorb(folder)

    def _read(self, name: str) -> list[Record]:
        path = self.folder / name
        records, problems = read_records(path) if path.exists() else ([], [])
        self.problems += problems
        return records

    def _table(self, path: Path) -> dict[str, Any]:
        table, problems = read_table(path) if path.exists() else ({}, [])
        self.problems += problems
        return table or {}

    def _absorb(self, folder: Path) -> None:
        """Cases that had ended when an earlier run was killed keep their records."""
        asked = self._table(folder / "entries.json")
        journals = Journals(folder)
        journals.update()
        known = {entry["case"]: entry for entry in _sound(asked.get("entries"), ("case", "key", *_PLANNED))}
        if not isinstance(asked.get("attempt"), int):
            return
        for case, fields in journals.records.items():
            entry = known.get(case)
            if entry is not None and entry["key"]:
                self._previous.setdefault((case, asked["attempt"]), self.record(entry, {**fields, "attempt": asked["attempt"]}))

    def record(self, entry: Entry, fields: dict[str, Any]) -> Record:
        """A whole record from what the cell said of a case and what the plan knows of it."""
        known = {name: entry[name] for name in _PLANNED}
        known["key"], known["seed"] = entry.get("key"), entry.get("seed")
        return schema.blank(self.cell, entry["case"], **{**known, **{name: value for name, value in fields.items() if name != "case"}})

    def settle(self, entry: Entry, attempt: int, fields: dict[str, Any]) -> None:
        """The case has come to this in that attempt."""
        self.records[entry["case"], attempt] = self.record(entry, {**fields, "attempt": attempt})

    def keep(self, entry: Entry, attempt: int) -> None:
        """A record from before is still the fact if everything that it depends on is the same."""
        identity = (entry["case"], attempt)
        previous = self._previous.get(identity)
        if previous is not None and identity not in self.records and previous["key"] == entry.get("key"):
            self.records[identity] = previous
            self.kept += 1

    def open(self, entries: Sequence[Entry], attempt: int) -> list[Entry]:
        """Those entries that have no record of that attempt yet."""
        return [entry for entry in entries if (entry["case"], attempt) not in self.records]

    def verdicts(self) -> Counter[str]:
        """How many cases came to what, file-level records included."""
        return Counter(record["verdict"] for record in (*self.file_records, *self.records.values()))

    def carry_over(self, about: Sequence[CaseFile] | None) -> None:
        """Keep records of cases that this run was not about. `about` holds the files it covered whole, None: it was interrupted."""
        covered = {str(file.path) for file in about or ()}
        known = {entry["case"] for entry in self.entries}
        for entry in self.absolute(self.previous_collected.get("cases", [])):
            gone = about is not None and (entry["file"] in covered or not Path(entry["file"]).exists())
            if gone or (about is not None and entry["case"] in known):
                continue
            kept = {identity: record for identity, record in self._previous.items() if identity[0] == entry["case"]}
            self.records = {**kept, **self.records}
            self.entries += [entry] if kept and entry["case"] not in known else []
        told = {record["case"] for record in self.file_records} | {file.case for file in about or ()}
        self.file_records += [record for record in self.previous_file_records if record["case"] not in told]
        if about is None:
            self.facts = self.facts or self.previous_facts

    def installed(self) -> None:
        """The environment is there: what told that it could not be made is no fact any more."""
        self.previous_file_records = [record for record in self.previous_file_records if record["stage"] != Stage.INSTALL.value]

    def collected(self, files: Sequence[CaseFile]) -> None:
        """These files were collected: what stood for cases that nobody knew gave way to what is known now."""
        told = {file.case for file in files}
        self.previous_file_records = [record for record in self.previous_file_records if record["case"] not in told]

    def write(self, collected: dict[str, Any]) -> None:
        """Write the cell's folder; then the journals are no longer needed."""
        order = {entry["case"]: number for number, entry in enumerate(self.entries)}
        records = sorted(
            self.records.values(), key=lambda record: (order.get(record["case"], len(order)), record["case"], record["attempt"])
        )
        write_records(self.folder / "records.jsonl", [*self.file_records, *records])
        write_records(self.folder / "controls.jsonl", self.controls)
        write_json(self.folder / "environment.json", self.facts)
        cases = [{**entry, "file": self._relative(entry["file"])} for entry in self.entries]
        files = [{"case": record["case"], "family": record["family"]} for record in self.file_records]
        write_json(
            self.folder / "collected.json",
            {"schema": 1, "tool": __version__, "cell": self.cell, **collected, "cases": cases, "files": files},
        )
        self._prune_artifacts(records)
        shutil.rmtree(self.work, ignore_errors=True)

    def _prune_artifacts(self, records: Sequence[Record]) -> None:
        """Keep of the artifacts those that a record tells of."""
        told = {str(value.get("value")) for record in records for value in record["observations"].values()}
        for path in [*self.folder.glob(f"{FOLDER}/*/*")]:
            if path.relative_to(self.folder).as_posix() not in told:
                path.unlink()
        for folder in [*self.folder.glob(f"{FOLDER}/*"), self.folder / FOLDER]:
            with contextlib.suppress(OSError):
                folder.rmdir()  # an empty one alone

    def _relative(self, file: str) -> str:
        for placeholder, base in placeholders(self.case_roots).items():
            if Path(file).is_relative_to(base):
                return f"{placeholder}/{Path(file).relative_to(base).as_posix()}"
        return Path(file).name

    def absolute(self, entries: Sequence[Entry]) -> list[Entry]:
        """Entries as this run needs them, from how they are written."""
        bases = placeholders(self.case_roots)
        return [{**entry, "file": _expanded(str(entry["file"]), bases)} for entry in entries]


def _expanded(file: str, bases: dict[str, Path]) -> str:
    placeholder, _, rest = file.partition("/")
    return str(bases[placeholder] / rest) if placeholder in bases else file
