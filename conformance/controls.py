"""The controls of a cell: cases whose verdict is known beforehand, so that a cell which gets one wrong is not trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.artifacts import Record
from conformance.caselauncher import CaseLauncher
from conformance.collector import Collector
from conformance.environmentspecs import Environment
from conformance.incell.verdicts import Verdict
from conformance.ledger import Ledger
from conformance.plan import control_files

#: What each control must come to. A control that is off says that the harness, not torch, is what the cell measured.
CONTROLS = {
    "control.passes": Verdict.PASS,
    "control.is_wrong": Verdict.WRONG,
    "control.raises": Verdict.RAISES,
    "control.skips": Verdict.UNSUPPORTED,
    "control.crashes": Verdict.CRASH,
    "control.times_out": Verdict.TIMEOUT,
}


@dataclass(frozen=True)
class Controls:
    """Runs family `control` in one cell."""

    collector: Collector
    launcher: CaseLauncher

    def run(self, base: Environment, cell: Ledger) -> None:
        """Leave the controls' records, and what is off about them, in the cell's ledger."""
        own = Ledger(cell.cell, cell.folder, cell.work, cell.case_roots)
        own.entries = self.collector.collect(base, control_files(), own.file_records)
        self.launcher.run(base, own.entries, 1, own)
        cell.controls = [record for _, record in sorted(own.records.items())]
        cell.facts["controls"] = self._judged(cell.controls)

    def _judged(self, records: list[Record]) -> dict[str, Any]:
        """`{"ok": whether all came to what they must, "off": those that did not}`."""
        verdicts = {record["case"]: record["verdict"] for record in records}
        device = self.launcher.harness.planned.cell.device
        elsewhere = Verdict.PASS if device == "cpu" else Verdict.UNEXERCISED
        must = {**CONTROLS, "control.runs_elsewhere": elsewhere, "control.falls_back": elsewhere}
        off = sorted(case for case, verdict in must.items() if verdicts.get(case) != verdict.value)
        return {"ok": not off, "off": off}
