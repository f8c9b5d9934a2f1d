"""What was measured in one cell: its build, its counts, and all that did not pass, by cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from conformance.artifacts import Record
from conformance.columns import Column
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.reasons import blamed, blamed_source, generic_reason, stated_reason


def answer(column: Column, expectations: Sequence[Expectation]) -> Iterator[str]:
    """The lines of one cell: what nobody expected first, then what was expected, then what is not there."""
    fact = column.result.fact
    build = f"torch {fact('torch', 'version')}, Python {fact('python', 'version')}, {fact('platform', 'os')}"
    notes = [note for note in (column.note, fact("reason")) if note]
    yield one_line(f"{column.cell}: {build}" + (f" ({', '.join(notes)})" if notes else ""))
    counts = Counter(record["verdict"] for record in column.outcomes.values())
    listed = ", ".join(f"{counts[verdict.value]} {verdict}" for verdict in Verdict if counts[verdict.value])
    yield f"  {len(column.outcomes)} cases: {listed}" if listed else "  no cases"
    if column.result.controls_off:
        yield f"  controls off: {', '.join(one_line(name, 120) for name in column.result.controls_off)}; nothing here can be trusted"
    yield from _by_cause(column, expectations)


def _by_cause(column: Column, expectations: Sequence[Expectation]) -> Iterator[str]:
    found: dict[tuple[int, int, str, str, int], list[Record]] = defaultdict(list)
    for record in column.outcomes.values():
        verdict = Verdict(record["verdict"])
        if verdict is not Verdict.PASS:
            entry = covering(record, expectations)
            place = 2 if verdict is Verdict.UNSUPPORTED else int(entry is not None)
            found[place, verdict.severity, generic_reason(record), blamed(record), entry.number if entry else -1].append(record)
    for (_, _, _, blame, _), records in sorted(found.items(), key=lambda item: (item[0][0], item[0][1], -len(item[1]), item[0][2])):
        entry = covering(records[0], expectations)
        first = records[0]
        state = f" (expected: {one_line(entry.reason, 120)})" if entry else ""
        yield f"  {first['verdict']}: {one_line(stated_reason(first), 300)}{state}"
        if blame:
            yield f"      {one_line(blame, 120)}: {one_line(blamed_source(first), 160)}"
        yield from (f"      {one_line(record['case'], 200)}" for record in records)
