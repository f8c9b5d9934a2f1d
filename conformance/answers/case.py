"""What is known of one case: where it passes, what it comes to elsewhere and why, what it observed, and how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from packaging.version import Version

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.columns import Group
from conformance.compare import basis, classes, said, stated
from conformance.config import DEVICES
from conformance.coverage import covering
from conformance.differences import Outcome, digest
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.reasons import blamed, blamed_source, generic_reason, reason_of
from conformance.transitions import Edge, edges, history

#: More cases than this are listed by their intervals alone.
WHOLE = 6
_WIDTH = 300


def answer(groups: Sequence[Group], expectations: Sequence[Expectation], cases: Sequence[str]) -> Iterator[str]:
    """The lines of each case; where there are many, one line for each case and group of columns."""
    width = max((len(group.label) for group in groups), default=0)
    for case in cases:
        title = next((titles[case] for group in groups for column in group.columns if case in (titles := column.result.titles())), "")
        yield one_line(case, 200) + (f": {one_line(title, 200)}" if title else "")
        for group in groups:
            outcomes = _outcomes(group, case)
            if outcomes:
                verdicts = group.verdicts(case)
                yield f"  {group.label:<{width}}  {passes(verdicts)} ({basis(verdicts)})"
                if len(cases) <= WHOLE:
                    yield from _story(group, case, outcomes, expectations)
    missing = [device for device in DEVICES if device not in {group.device for group in groups}]
    if cases and missing:
        yield f"not measured on {', '.join(missing)}"


def speaking_of(groups: Sequence[Group], word: str) -> list[str]:
    """The cases whose id or title holds `word`, whatever its case, in their order."""
    titles = {case: "" for group in groups for column in group.columns for case in column.outcomes}
    titles.update({case: title for group in groups for column in group.columns for case, title in column.result.titles().items()})
    return sorted(case for case, title in titles.items() if word.strip() and word.strip().lower() in f"{case} {title}".lower())


def passes(verdicts: dict[Version, Verdict | None]) -> str:
    """Where it passes, in words."""
    told = stated(verdicts)
    return {"none": "passes nowhere", "unknown": "not known"}.get(told, f"passes {told}")


def _outcomes(group: Group, case: str) -> list[Outcome]:
    return [Outcome(column.cell, column.version, record) for column in group.columns if (record := column.outcomes.get(case)) is not None]


def _story(group: Group, case: str, outcomes: list[Outcome], expectations: Sequence[Expectation]) -> Iterator[str]:
    planned = sorted({column.version for column in group.columns})
    for alike in _stretches(outcomes, planned, lambda outcome: _alike(outcome.record, expectations)):
        yield from _stretch(alike, expectations)
    breaks = edges(history(group, case), planned)
    yield from (f"    {edge}" for edge in breaks)
    yield from _observations(outcomes, planned)
    yield f"    run it again: {again(case, outcomes, breaks)}"


def _stretches(outcomes: list[Outcome], planned: list[Version], key: Callable[[Outcome], object]) -> Iterator[list[Outcome]]:
    """Neighbours with one key, among all columns of the device: a release that has no outcome parts those on its sides."""
    found: list[Outcome] = []
    for outcome in outcomes:
        near = bool(found) and planned.index(outcome.version) - planned.index(found[-1].version) <= 1
        if found and not (near and key(outcome) == key(found[-1])):
            yield found
            found = []
        found.append(outcome)
    if found:
        yield found


def _alike(record: Record, expectations: Sequence[Expectation]) -> tuple[object, ...]:
    entry = covering(record, expectations)
    ops = record["device_ops"]
    return record["verdict"], generic_reason(record), blamed(record), entry.number if entry else 0, ops_told(ops) if ops else ""


def _stretch(outcomes: list[Outcome], expectations: Sequence[Expectation]) -> Iterator[str]:
    """Neighbouring releases that came to the same, with the reason of the first."""
    record = outcomes[0].record
    releases = list(dict.fromkeys(str(outcome.version) for outcome in outcomes))
    span = releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"
    why = one_line(reason_of(record), _WIDTH)
    yield f"    {span:<18} {record['verdict']:<11} {why}".rstrip()
    if record["blame"]:
        yield f"{'':23}{one_line(blamed(record), 120)}: {one_line(blamed_source(record), 160)}"
    if record["device_ops"] is not None:
        yield f"{'':23}{ops_told(record['device_ops'])}"
    entry = covering(record, expectations)
    if entry is not None:
        yield f"{'':23}expected: {one_line(entry.reason, 200)} ({one_line(entry.link, 200)}, review {entry.review})"


def ops_told(ops: dict[str, object]) -> str:
    """How many ops ran on the cell's device, and which fell back."""
    fallback = ops["fallback"] if isinstance(ops["fallback"], list) else []
    ran = "ops were not counted" if ops["on"] is None else f"{ops['on']} ops ran on the device"
    return one_line(f"{ran}, on the CPU instead: {', '.join(map(str, fallback))}" if fallback else ran, _WIDTH)


def _observations(outcomes: list[Outcome], planned: list[Version]) -> Iterator[str]:
    """Each observation over the releases: bits by their classes, other values by stretches of equal ones."""
    names = dict.fromkeys(name for outcome in outcomes for name in sorted(outcome.record["observations"]))
    for name in names:
        digests = {outcome.version: digest(outcome.record, name) or None for outcome in outcomes}
        if any(digests.values()):
            yield f"    {one_line(name, 80)}: bits {', '.join(f'{run.label} {said(run.releases, planned)}' for run in classes(digests))}"
            continue
        seen = [(outcome.version, value) for outcome in outcomes if (value := _value(outcome.record, name))]
        stretches = [[version for version, _ in alike] for _, alike in groupby(seen, key=lambda each: each[1])]
        values = [value for value, _ in groupby(value for _, value in seen)]
        told = [f"{value} ({said(span, planned)})" for value, span in zip(values, stretches)]
        if told:
            yield f"    {one_line(name, 80)}: {', '.join(told) if len(told) > 1 else values[0]}"


def _value(record: Record, name: str) -> str:
    observed = record["observations"].get(name)
    return one_line(observed["value"], 80) if isinstance(observed, dict) and "value" in observed else ""


def again(case: str, outcomes: Sequence[Outcome], breaks: Sequence[Edge] = ()) -> str:
    """The command that runs the case where it matters: where it broke last, else where it deviates, else on the newest release."""
    broke = [edge.after for edge in breaks if edge.broke]
    deviating = [outcome for outcome in outcomes if outcome.verdict.deviates]
    outcome = (broke or deviating or list(outcomes))[-1]
    return command(outcome.cell, case)


def command(cell: Cell, case: str) -> str:
    """What runs a case in a cell, for a shell."""
    return f"conformance run --only {cell} --case {one_line(shlex.quote(case))}"
