"""Wrong twins: whether each case gave each of its twins the verdict that the pair states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.artifacts import read_records, read_table
from conformance.incell.verdicts import Verdict

#: Verdicts by which a case itself may hide what its twin does; one that passes or is wrong hides nothing.
LOUD = (Verdict.RAISES.value, Verdict.CRASH.value, Verdict.TIMEOUT.value)


@dataclass
class Catch:
    """How many twins were caught, could not run, were hidden, or got away, each as `(cell, twin, stated, found, reason)`.

    A twin is hidden where the case itself comes to that very verdict in the cell: what is wrong there is not the twin's mistake.
    """

    caught: int = 0
    unsupported: int = 0
    hidden: int = 0
    escaped: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when a twin got away, 5 when there was none to catch, else 0."""
        return 1 if self.escaped else (0 if self.caught else 5)

    def lines(self) -> list[str]:
        """The catch for a terminal."""
        total = self.caught + len(self.escaped)
        lines = [
            f"{case} in {cell}: the pair states {stated}, the case gave {found}: {reason}"
            for cell, case, stated, found, reason in self.escaped
        ]
        hidden = f", {self.hidden} hidden behind a deviation of their case" if self.hidden else ""
        return [*lines, f"{self.caught} of {total} wrong twins caught, {self.unsupported} not supported where they ran{hidden}"]


def escaped(reports: Path, cells: Sequence[str]) -> Catch:
    """Compare what the twins under `<reports>/twins` came to with what their pairs state."""
    catch = Catch()
    for cell in cells:
        folder = reports / "twins" / cell
        collected, _ = read_table(folder / "collected.json")
        records, _ = read_records(folder / "records.jsonl")
        found = {record["case"]: record for record in records}
        own, _ = read_records(reports / "results" / cell / "records.jsonl")
        verdicts = {record["case"]: record["verdict"] for record in own}
        for entry in (collected or {}).get("cases", []):
            _count(catch, cell, entry, found.get(entry["case"]), verdicts.get(entry["case"].partition("~")[0], ""))
    return catch


def _count(catch: Catch, cell: str, entry: dict[str, str], record: dict[str, str] | None, own: str) -> None:
    """`own` is what the case itself came to in the cell, empty where that is not known."""
    verdict = record["verdict"] if record is not None else Verdict.MISSING.value
    if verdict == Verdict.UNSUPPORTED.value:
        catch.unsupported += 1
    elif verdict == entry["expected"]:
        catch.caught += 1
    elif verdict == own and verdict in LOUD:
        catch.hidden += 1
    else:
        catch.escaped.append((cell, entry["case"], entry["expected"], verdict, record["reason"] if record is not None else "no record"))
