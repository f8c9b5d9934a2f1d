"""What one release came to in one case: its verdict, or the class of one observation, with the evidence. From results on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from conformance.artifacts import Record
from conformance.compare import UNKNOWN
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.results import CellResult, ResultSet


@dataclass(frozen=True)
class Reading:
    """`value` is what is compared; equal values are one class. `record` is None where the release has no such case."""

    version: Version
    value: str
    cell: CellResult
    record: Record | None

    @property
    def evidence(self) -> str:
        """What it was measured with, and when: what may confound the comparison."""
        facts = [
            f"build {self.cell.fact('torch', 'version')}",
            f"Python {self.cell.fact('python', 'version')}",
            f"numpy {version}" if (version := self._frozen("numpy")) else "no numpy",
            self.capability,
            str((self.record or self.cell.environment).get("started_at") or "")[:10],
        ]
        return ", ".join(fact for fact in facts if fact)

    @property
    def capability(self) -> str:
        """The vector level that torch used on the CPU."""
        return self.cell.fact("cpu", "capability")

    def _frozen(self, name: str) -> str:
        environments = self.cell.environment.get("environments")
        base = environments.get("base") if isinstance(environments, dict) else None
        lines = base.get("freeze") if isinstance(base, dict) else None
        found = (str(line).partition("==") for line in lines or ())
        return next((version for package, _, version in found if package == name), "")

    def lines(self) -> list[str]:
        """The reading for a terminal."""
        told = [f"{self.version}: {self.value}", f"    {self.evidence}"]
        if self.record is not None and self.record["reason"]:
            told.append(f"    {one_line(self.record['reason'], 300)}")
        if self.record is not None and self.record["blame"]:
            blame = self.record["blame"]
            told.append(f"    {blame['file']}:{blame['line']}: {one_line(str(blame['source']), 160)}")
        return told


def value_of(record: Record, observation: str) -> str | None:
    """What is compared of a record; None for one that says nothing of torch."""
    verdict = Verdict(record["verdict"])
    if verdict in UNKNOWN:
        return None
    if not observation:
        return verdict.value
    observed = record["observations"].get(observation)
    return told(observed) if isinstance(observed, dict) else f"none ({verdict})"


def told(observed: dict[str, Any]) -> str:
    """An observation as one word: the digest of a tensor, else the value."""
    return one_line(str(observed.get("digest") or observed.get("value")), 200)


def readings(result: ResultSet, case: str, observation: str, device: str, platform: str) -> dict[Version, Reading]:
    """Release -> what the results say of the case on that device and platform, a tagged cell's only for want of another's."""
    found: dict[Version, Reading] = {}
    cells = (cell for cell in result.judged() if (cell.cell.device, cell.cell.platform) == (device, platform))
    for cell in sorted(cells, key=lambda cell: bool(cell.cell.tag), reverse=True):
        reading = of_cell(cell, case, observation)
        if reading is not None:
            found[cell.cell.version] = reading
    return dict(sorted(found.items()))


def of_cell(cell: CellResult, case: str, observation: str) -> Reading | None:
    """What one cell says of the case; None where it says nothing, or was not asked."""
    record = cell.outcomes().get(case)
    if record is None:
        return None
    value = value_of(record, observation)
    return Reading(cell.cell.version, value, cell, record) if value is not None else None


def observations(found: Iterable[Reading]) -> list[str]:
    """The names of what the case observes, in any of the readings."""
    return sorted({name for reading in found if reading.record is not None for name in reading.record["observations"]})
