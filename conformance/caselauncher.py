"""The launcher of a cell's cases: after a death the culprit is known, and the rest is launched again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.artifacts import Record, write_json
from conformance.environmentspecs import Environment
from conformance.harness import Harness
from conformance.incell.verdicts import Stage, Verdict
from conformance.journals import Journals
from conformance.launch import Ending
from conformance.ledger import Entry, Ledger

#: Fewer cases than this are not worth a worker of their own, which imports torch and its compiler first.
_CASES_PER_WORKER = 24


#: So many cases of a model that ended their process while it was built are enough: a model that hangs would cost the limit of every case.
_ENOUGH = 2
_DEAD = (Verdict.CRASH.value, Verdict.TIMEOUT.value)


@dataclass(frozen=True)
class CaseLauncher:
    """Runs cases of one cell. `workers` is what the run was asked for; None: as configured, or by the cores."""

    harness: Harness
    workers: int | None

    def run(self, environment: Environment, entries: list[Entry], attempt: int, ledger: Ledger) -> None:
        """Launch until every entry has its record of that attempt."""
        while left := ledger.open(entries, attempt):
            folder = self.harness.new_folder(environment.request.name)
            journals = Journals(folder)
            try:
                found = self._launch(environment, folder, journals, left, attempt)
            except BaseException:
                journals.update()
                _settle_all(ledger, left, attempt, journals.records)
                raise
            _settle_all(ledger, left, attempt, found)
            _give_up(ledger, entries, attempt)

    def _launch(
        self, environment: Environment, folder: Path, journals: Journals, entries: list[Entry], attempt: int
    ) -> dict[str, dict[str, Any]]:
        """One launch; the fields of every case that it settled, at least one."""
        wanted = folder / "wanted.txt"
        wanted.write_text("\n".join(entry["case"] for entry in entries), encoding="utf-8")
        write_json(folder / "entries.json", {"attempt": attempt, "entries": entries})
        files = list(dict.fromkeys(entry["file"] for entry in entries))
        memory = {entry["case"]: entry["memory_mb"] for entry in entries if entry["memory_mb"]}
        command = [*self.harness.pytest(environment), *self._spread(entries), *files]
        name = environment.request.name
        ending = self.harness.launch(command, folder, journals, environment=name, wanted=wanted, attempt=attempt, case_memory_mb=memory)
        deaths = self.harness.deaths(journals, ending)
        of_files = {entry["case"]: deaths[entry["file_case"]] for entry in entries if entry["file_case"] in deaths}
        found = {**of_files, **deaths, **journals.records}
        settled = {entry["case"]: found[entry["case"]] for entry in entries if entry["case"] in found}
        return settled or self._nothing_ran(entries, folder, ending)

    def _spread(self, entries: list[Entry]) -> list[str]:
        """How pytest-xdist spreads the cases; nothing where one process does."""
        chosen = self.workers if self.workers is not None else self.harness.config.workers
        each = max(entry.get("cases_per_worker") or _CASES_PER_WORKER for entry in entries)
        worth = min(self.harness.workers, len(entries) // each)
        workers = min(chosen, len(entries)) if chosen is not None else worth if worth > 1 else 0
        if not workers:
            return ["-p", "no:xdist"]
        return ["-p", "xdist.plugin", "-n", str(workers), "--dist", "worksteal", "--max-worker-restart", "1000000"]

    def _nothing_ran(self, entries: list[Entry], folder: Path, ending: Ending) -> dict[str, dict[str, Any]]:
        """A launch that settled nothing would settle nothing for ever."""
        reason = f"the process ended with exit code {ending.code} before any case began"
        fields = {"verdict": Verdict.ERROR.value, "stage": Stage.COLLECT.value, "reason": reason, "key": None}
        return {entry["case"]: {**fields, "output_tail": self.harness.console(folder)} for entry in entries}


def _give_up(ledger: Ledger, entries: list[Entry], attempt: int) -> None:
    """Cases left of a model that was never built, and ended every process that tried, come to what those came to."""
    ended: dict[str, list[Record]] = {}
    for entry in entries:
        record = ledger.records.get((entry["case"], attempt))
        if record is not None and entry["subject"]:
            ended.setdefault(entry["subject"], []).append(record)
    for entry in ledger.open(entries, attempt):
        records = ended.get(entry["subject"] or "", [])
        if len(records) >= _ENOUGH and all(each["verdict"] in _DEAD and each["stage"] == Stage.BUILD.value for each in records):
            fields = {name: records[0][name] for name in ("verdict", "stage", "reason", "signal", "blame")}
            told = f"not run: {' and '.join(each['case'] for each in records)} ended so, while the model was built"
            ledger.settle(entry, attempt, {**fields, "key": None, "output_tail": told})


def _settle_all(ledger: Ledger, entries: list[Entry], attempt: int, found: dict[str, dict[str, Any]]) -> None:
    for entry in entries:
        if entry["case"] in found:
            ledger.settle(entry, attempt, found[entry["case"]])
