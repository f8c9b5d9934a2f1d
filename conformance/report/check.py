"""What checks say of one model, for a terminal: check by release, then each fault with its line and its cure, then the honest range."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

from conformance import drift
from conformance.advice import UNASKED, advice
from conformance.artifacts import Record
from conformance.claimwidth import LOUDNESS, Outcome
from conformance.compare import intervals, spans
from conformance.incell.verdicts import Verdict, worst
from conformance.plaintext import one_line
from conformance.report.grid import SIGNS
from conformance.report.hints import hints
from conformance.results import CellResult
from conformance.uses import EAGER, USES, use_of

#: Lines of our own cases and instruments are not what a user can mend.
_OURS = ("<cases", "<conformance>")
_FAULTS = (*LOUDNESS, Verdict.ERROR, Verdict.MISSING)


@dataclass(frozen=True)
class Fault:
    """One and the same fault of a check, with the releases that show it."""

    case: str
    record: Record
    releases: tuple[Version, ...]


def lines(cells: Sequence[CellResult], alias: str) -> list[str]:
    """The whole answer about the subject `alias`, one device after the other."""
    devices = dict.fromkeys(cell.cell.device for cell in cells)
    found: list[str] = []
    for device in devices:
        found += _of_device([cell for cell in cells if cell.cell.device == device], alias, device)
    return found


def _of_device(cells: Sequence[CellResult], alias: str, device: str) -> list[str]:
    outcomes = {cell.cell.version: _about(cell, {alias}) for cell in cells}
    cases = list(dict.fromkeys(case for found in outcomes.values() for case in found))
    table = ["", f"{alias} on {device}", *_table(cases, outcomes)]
    faults = [*_shared(outcomes), *(line for case in cases for line in _faults(case, outcomes))]
    moved = drift.between(cases, outcomes)
    seen = [
        line for case, told, places in hints(cases, outcomes) for line in (f"  {_short(case)}: {told}", *(f"      {x}" for x in places))
    ]
    paragraphs = {"faults": faults, "passes, and worth a look": seen, "between releases": moved}
    told = [line for head, found in paragraphs.items() if found for line in ("", head, *found)]
    return [*table, *told, "", *_ranges(cases, outcomes, device)]


def _table(cases: Sequence[str], outcomes: dict[Version, dict[str, Record]]) -> Iterator[str]:
    width = max((len(_short(case)) for case in cases), default=0)
    heads = [str(version) for version in sorted(outcomes)]
    yield " " * width + "".join(f"  {head}" for head in heads)
    for case in cases:
        signs = []
        for version, head in zip(sorted(outcomes), heads, strict=True):
            record = outcomes[version].get(case)
            signs.append("  " + (SIGNS[Verdict(record["verdict"])] if record else " ").rjust(len(head)))
        yield f"{_short(case):<{width}}{''.join(signs)}"
    used = {Verdict(record["verdict"]) for found in outcomes.values() for record in found.values()}
    yield ", ".join(f"{SIGNS[verdict]} {verdict.value}" for verdict in Verdict if verdict in used)


def _short(case: str) -> str:
    """The check without the words that every one of them has: `trace.export[nonstrict]`."""
    family, _, rest = case.partition(".")
    name, _, params = rest.partition("[")
    kept = params.removesuffix("]").partition("-")[2]
    return f"{family}.{name.removeprefix('subject_')}" + (f"[{kept}]" if kept else "")


def _shared(outcomes: dict[Version, dict[str, Record]]) -> Iterator[str]:
    """What keeps every check of a release from its question, told once: the model cannot be imported, built or installed there."""
    groups: dict[tuple[str, str], list[Version]] = {}
    for version in sorted(outcomes):
        if _is_shared(outcomes[version]):
            first = next(iter(_of_model(outcomes[version])))
            groups.setdefault((first["verdict"], first["reason"]), []).append(version)
    for (verdict, _), versions in groups.items():
        record = next(iter(_of_model(outcomes[versions[0]])))
        yield f"  every check: {verdict} ({_loudness(record)}) on {', '.join(spans(versions, outcomes))}"
        yield from _why(record)


def _of_model(found: dict[str, Record]) -> list[Record]:
    """The records that the model is to answer for: a check that is unsupported never came to it."""
    return [record for record in found.values() if record["verdict"] != Verdict.UNSUPPORTED.value]


def _is_shared(found: dict[str, Record]) -> bool:
    """Whether more than one check ended before its question, and all for the same reason."""
    records = _of_model(found)
    told = {(record["verdict"], re.sub(r"\d+", "", record["reason"] or "")) for record in records}  # as how many megabytes it had printed
    return len(records) > 1 and len(told) == 1 and all(record["stage"] in UNASKED for record in records)


def _loudness(record: Record) -> str:
    return LOUDNESS.get(Verdict(record["verdict"]), "says nothing about torch")


def _faults(case: str, outcomes: dict[Version, dict[str, Record]]) -> Iterator[str]:
    for fault in _grouped(case, {version: found for version, found in outcomes.items() if not _is_shared(found)}):
        record = fault.record
        where = ", ".join(spans(fault.releases, outcomes))
        yield f"  {_short(case)}: {record['verdict']} ({_loudness(record)}) on {where}"
        yield from _why(record)


def _why(record: Record) -> Iterator[str]:
    """The reason, the smallest input, the user's line and the cure, as far as they are known."""
    yield f"      {one_line(record['reason'], 400 if record['stage'] in UNASKED else 200)}"
    smallest = (record["observations"] or {}).get("smallest_failing", {}).get("value", "not found")
    if smallest != "not found":
        yield f"      smallest input that shows it: {one_line(smallest, 120)}"
    blame = record["blame"]
    if blame and not str(blame["file"]).startswith(_OURS):
        yield f"      {blame['file']}:{blame['line']}: {one_line(str(blame['source']), 120)}"
    yield from _blocking(record)
    cure = advice(record)
    if cure is not None:
        yield f"      cure: {cure}"


def _blocking(record: Record) -> Iterator[str]:
    """Every op that blocks a lowering, where there are more than the one in the reason, and the program that was kept of it."""
    observed = record["observations"] or {}
    ops = str(observed.get("blocking", {}).get("value", "")).split("; ")
    if len(ops) > 1:
        yield from (f"      blocks: {one_line(op, 240)}" for op in dict.fromkeys(ops))
    program = observed.get("artifact program.mlir", {}).get("value", "")
    if program:
        yield f"      kept: results/{record['cell']}/{program} beside site/, with reproduce.txt"


def _grouped(case: str, outcomes: dict[Version, dict[str, Record]]) -> list[Fault]:
    """The faults of a check, equal ones together: same verdict, same line, same kind of exception."""
    groups: dict[tuple[object, ...], list[Version]] = {}
    records: dict[tuple[object, ...], Record] = {}
    for version in sorted(outcomes):
        record = outcomes[version].get(case)
        if record is None or Verdict(record["verdict"]) not in _FAULTS:
            continue
        blame = record["blame"] or {}
        key = (record["verdict"], blame.get("file"), blame.get("source"), (record["exception"] or {}).get("type"))
        groups.setdefault(key, []).append(version)
        records.setdefault(key, record)
    return [Fault(case, records[key], tuple(versions)) for key, versions in groups.items()]


def _ranges(cases: Sequence[str], outcomes: dict[Version, dict[str, Record]], device: str) -> Iterator[str]:
    """The releases that the model may claim, for each use of it that was checked, then those that pass every check."""
    by_use = {name: [case for case in cases if use_of(case) == name] for name in USES}
    uses = {name: own for name, own in by_use.items() if own}
    yield f"requires on {device}"
    for name, own in uses.items():
        asked = {version: found for version, found in outcomes.items() if _was_asked(found, own)}
        yield f"  {USES[name].title:<24}{_range(_verdicts(asked, own))}"
    if len(uses) > 1:
        yield f"  {'every check passes':<24}{_range(_verdicts(outcomes, cases))}"


def _was_asked(found: dict[str, Record], cases: Sequence[str]) -> bool:
    """Whether a release answered any of the checks: where all are unsupported nothing may be claimed."""
    return any(found[case]["verdict"] != Verdict.UNSUPPORTED.value for case in cases if case in found)


def _verdicts(outcomes: dict[Version, dict[str, Record]], cases: Sequence[str]) -> dict[Version, Verdict | None]:
    """The worst verdict of each release among the checks."""
    return {version: _worst(found[case] for case in cases if case in found) for version, found in outcomes.items()}


def _range(verdicts: dict[Version, Verdict | None]) -> str:
    """The releases that pass, as one says it."""
    told = intervals(verdicts)
    return {"none": "no measured release", "unknown": "nothing was measured"}.get(told, f"torch {told}")


def _about(cell: CellResult, aliases: Collection[str]) -> dict[str, Record]:
    """The outcomes of those subjects' checks, and of what stands for files whose cases are not known."""
    return {case: record for case, record in cell.outcomes().items() if record["subject"] is None or record["subject"] in aliases}


def outcomes_by_release(cells: Sequence[CellResult], aliases: Collection[str]) -> dict[Version, Outcome]:
    """How each release did in eager mode, the worst of its devices: what a requirement on torch promises."""
    found: dict[Version, list[Record]] = {}
    for cell in cells:
        own = [record for case, record in _about(cell, aliases).items() if use_of(case) == EAGER]
        found.setdefault(cell.cell.version, []).extend(own)
    return {
        version: Outcome(_worst(records), tuple(record for record in records if Verdict(record["verdict"]) in LOUDNESS))
        for version, records in found.items()
    }


def _worst(records: Iterable[Record]) -> Verdict | None:
    """The worst verdict; what is unsupported passes, as nothing is wrong there; None where nothing was measured."""
    found = worst(Verdict(record["verdict"]) for record in records)
    return Verdict.PASS if found is Verdict.UNSUPPORTED else found
