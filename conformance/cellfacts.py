"""The facts of one cell: what environment.json says of its build, its machine and its device, read by a process in the cell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from conformance import __version__, keys
from conformance.artifacts import read_table
from conformance.collector import Collector, Launched
from conformance.environmentspecs import Environment
from conformance.errors import InstallError
from conformance.harness import Harness
from conformance.launch import Ending
from conformance.plan import CaseFile, control_files


@dataclass
class CellFacts:
    """Reads the facts of a cell. `key` says what they depend on, and is empty until an environment was looked at.

    The process that tells them goes on to collect the cell's cases, so that torch is imported once for both: `collected` is that launch.
    """

    harness: Harness
    collector: Collector
    key: str = ""
    collected: Launched | None = None

    def read(self, base: Environment, files: Sequence[CaseFile], previous: dict[str, Any]) -> dict[str, Any]:
        """What confounds verdicts there; `previous` where the same environment on the same machine was read before.

        Raises InstallError where the index gave a build that is not the cell's.
        """
        self.key = self._key(base)
        if previous.get("key") == self.key and previous.get("status") == "ok":
            return previous
        launched = self.collector.launch(base, files or control_files(), fingerprint=True)
        found, _ = read_table(launched.fingerprint) if launched.fingerprint.exists() else (None, [])
        status, reason = self._status(found, launched.ending, launched.folder)
        self.collected = launched if found is not None else None
        return self.table(status, reason, found or {})

    def _key(self, base: Environment) -> str:
        machine = (list(os.uname()), os.cpu_count())
        controls = [keys.case_code(file.path) for file in control_files()]
        code = (keys.in_cell_code(), controls, __version__)
        return keys.digest(base.lock, self.harness.planned.target.variables, machine, code)

    def _status(self, found: dict[str, Any] | None, ending: Ending, folder: Path) -> tuple[str, str]:
        if found is None:
            return "import-failed", f"torch could not be imported (exit code {ending.code}): {self.harness.console(folder)[-500:]}"
        device, build = self.harness.planned.cell.device, found["torch"]
        if device == "cuda" and not (build["cuda"] or build["hip"]):
            raise InstallError(f"the index gave {build['version']}, a build without CUDA or ROCm, for a cuda cell")
        if found["device"]["probe"] != "ok":
            return "probe-failed", f"the probe of {device} failed: {found['device']['probe']}"
        return "ok", ""

    def table(self, status: str, reason: str, found: dict[str, Any]) -> dict[str, Any]:
        """What environment.json holds, but for the environments, which are known when the cell ends."""
        return {
            **{name: value for name, value in found.items() if name != "freeze"},
            "schema": 1,
            "tool": __version__,
            "cell": str(self.harness.planned.cell),
            "status": status,
            "reason": reason,
            "environments": {},
            "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "key": self.key,
        }
