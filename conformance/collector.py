"""Which cases exist in a cell: collected by a process of its own, which may die of a file and is then started without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.artifacts import Record
from conformance.environmentspecs import Environment
from conformance.harness import Harness
from conformance.incell import records as schema
from conformance.incell.verdicts import Stage, Verdict
from conformance.journals import Journals
from conformance.launch import Ending
from conformance.ledger import Entry
from conformance.plan import CaseFile


@dataclass(frozen=True)
class Launched:
    """One launch that collects: what it left and how it ended."""

    folder: Path
    journals: Journals
    ending: Ending

    @property
    def fingerprint(self) -> Path:
        """What confounds verdicts there, where the launch was to tell and came to it."""
        return self.folder / "fingerprint.json"


@dataclass
class Collector:
    """Collects case files in one cell. `left_out` names cases that exist and are not planned here."""

    harness: Harness
    left_out: list[str] = field(default_factory=list)

    def launch(self, base: Environment, files: Sequence[CaseFile], *, fingerprint: bool = False) -> Launched:
        """One process that collects those files; before it imports any it takes the fingerprint, if that is wanted."""
        folder = self.harness.new_folder("collect")
        journals = Journals(folder)
        command = [*self.harness.pytest(base), "-p", "no:xdist", "--collect-only", *(str(file.path) for file in files)]
        out = folder / "fingerprint.json" if fingerprint else None
        return Launched(folder, journals, self.harness.launch(command, folder, journals, fingerprint=out))

    def collect(
        self, base: Environment, files: Sequence[CaseFile], file_records: list[Record], first: Launched | None = None
    ) -> list[Entry]:
        """The cases of those files. A file that kills the process gets a record, and the others are collected without it.

        `first` is a launch that has collected all of them before.
        """
        while files:
            launched, first = first or self.launch(base, files), None
            folder, journals, ending = launched.folder, launched.journals, launched.ending
            deaths = self.harness.deaths(journals, ending)
            file_records += [record for file in files if (record := self._file_outcome(file, journals, deaths)) is not None]
            settled = {record["case"] for record in file_records}
            left = [file for file in files if file.case not in settled]
            if journals.complete or len(left) == len(files):
                file_records += self._never_collected(left, journals, ending, folder)
                self.left_out += journals.left_out
                return _distinct(journals.cases, {record["case"] for record in file_records})
            files = left
        return []

    def _file_outcome(self, file: CaseFile, journals: Journals, deaths: dict[str, dict[str, Any]]) -> Record | None:
        """The record of a file that could not be collected; None for one that was, or that the process did not come to."""
        if file.case in deaths:
            return schema.blank(str(self.harness.planned.cell), file.case, **deaths[file.case])
        event = journals.files.get(file.case)
        if event is None or event["outcome"] == "passed":
            return None
        verdict = Verdict.UNSUPPORTED if event["outcome"] == "skipped" else Verdict.ERROR
        return {**self.file_record(file, verdict, Stage.COLLECT, event["reason"]), "output_tail": event["output_tail"]}

    def _never_collected(self, files: Sequence[CaseFile], journals: Journals, ending: Ending, folder: Path) -> list[Record]:
        """Files whose cases a process that died elsewhere did not come to tell."""
        reason = f"collection ended with exit code {ending.code} before this file's cases were told: {self.harness.console(folder)[-500:]}"
        lost = [file for file in files if not journals.complete or file.case not in journals.files]
        return [self.file_record(file, Verdict.ERROR, Stage.COLLECT, reason) for file in lost]

    def file_record(self, file: CaseFile, verdict: Verdict, stage: Stage, reason: str) -> Record:
        """The record of a file whose cases are not known."""
        scrubbed = self.harness.scrub().text(reason)
        return schema.blank(str(self.harness.planned.cell), file.case, verdict=verdict.value, stage=stage.value, reason=scrubbed)


def _distinct(entries: list[Entry], files: set[str]) -> list[Entry]:
    """One entry per id: where two cases share one, it is refused, since nobody could tell which of them a record is about.

    A case that has the id of a file which could not be collected keeps out of that file's way under the id of its own file.
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry["case"] in files:
            refused = f"its id {entry['case']} is also that of a file which could not be collected"
            entry = {**entry, "case": f"{entry['file_case']}.{entry['case'].partition('.')[2]}", "refused": refused}
        first = found.setdefault(entry["case"], entry)
        if first is not entry:
            places = " and ".join(f"{Path(each['file']).name}:{each['line'] + 1}" for each in (first, entry))
            found[entry["case"]] = {**first, "refused": f"two cases have this id: {places}"}
    return list(found.values())
