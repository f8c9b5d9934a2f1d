"""Ladders: how far each case of family `lowering` came in each cell, stage by stage, what stopped it, and which line is to blame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.artifacts import Record
from conformance.differences import number
from conformance.incell.verdicts import Stage, Verdict

#: The rungs, from the bottom.
STAGES: tuple[str, ...] = tuple(each.value for each in (Stage.CAPTURE, Stage.CONVERT, Stage.LOWER, Stage.COMPILE, Stage.RUN, Stage.COMPARE))


@dataclass(frozen=True)
class Rung:
    """Where one case stood in one cell when it ended."""

    stage: str
    verdict: str
    seconds: float
    #: `file:line: source` of the user's code, empty where none is to blame.
    blame: str
    reason: str
    #: Every op that blocks by itself, as the case observed it.
    blocking: str
    #: The largest difference to eager float32; None where nothing was compared.
    difference: float | None
    #: Paths of what was kept, relative to the cell's folder.
    artifacts: tuple[str, ...] = ()


def rung(record: Record) -> Rung | None:
    """What a record says; None for one that did not set out: unsupported, or ended before its first stage."""
    if record["verdict"] == Verdict.UNSUPPORTED.value or (record["stage"] not in STAGES):
        return None
    observed = record["observations"]
    blame = record["blame"]
    where = f"{str(blame['file']).rpartition('/')[2]}:{blame['line']}: {blame['source']}" if blame else ""
    return Rung(
        stage=record["stage"],
        verdict=record["verdict"],
        seconds=record["duration_s"],
        blame=where,
        reason=record["reason"],
        blocking=_text(observed, "blocking"),
        difference=number(record, "max_difference"),
        artifacts=tuple(str(each.get("value")) for name, each in sorted(observed.items()) if name.startswith("artifact ")),
    )


def stopped(rungs: Iterable[Rung | None]) -> Mapping[str, int]:
    """Stage -> how many cases stopped there, in order; those that went all the way count as `compare` passed, under `passed`."""
    counted: Counter[str] = Counter()
    for each in rungs:
        if each is not None:
            counted["passed" if each.verdict == Verdict.PASS.value else each.stage] += 1
    return {name: counted[name] for name in (*STAGES, "passed") if counted[name]}


def ladder(records: Sequence[Record | None]) -> list[Rung | None]:
    """The rungs of one case over the cells of a table, in their order."""
    return [rung(record) if record is not None else None for record in records]


def _text(observed: Mapping[str, Mapping[str, object]], name: str) -> str:
    return str(observed.get(name, {}).get("value", ""))
