"""What was measured of one case, or in one cell, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance import selectors
from conformance.artifacts import Record
from conformance.errors import NothingSelectedError
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.results import CellResult, ResultSet
from conformance.standings import covering


def details(result: ResultSet, expectations: Sequence[Expectation], name: str) -> list[str]:
    """The lines of every case or cell that `name` matches. Raises NothingSelectedError with the close ones when none does."""
    cells = {str(cell.cell): cell for cell in result.cells}
    cases = sorted({record["case"] for cell in result.cells for record in cell.records})
    lines = [line for one in cells if one in selectors.chosen([name], cells) for line in _cell(cells[one], expectations)]
    lines += [line for one in sorted(selectors.chosen([name], cases)) for line in _case(result, expectations, one)]
    if not lines:
        raise NothingSelectedError(f"no case or cell matches {name!r}{selectors.close_matches(name, [*cases, *cells])}")
    return lines


def _case(result: ResultSet, expectations: Sequence[Expectation], case: str) -> Iterator[str]:
    title = next((titles[case] for cell in result.cells if case in (titles := cell.titles())), "")
    yield case + (f": {one_line(title, 200)}" if title else "")
    for cell in result.cells:
        record = cell.outcomes().get(case)
        if record is not None:
            yield from _outcome(str(cell.cell), record, expectations)


def _cell(cell: CellResult, expectations: Sequence[Expectation]) -> Iterator[str]:
    build = f"torch {cell.fact('torch', 'version')}, Python {cell.fact('python', 'version')}, {cell.fact('platform', 'os')}"
    yield f"{cell.cell}: {build}" + (f", {cell.fact('reason')}" if cell.fact("reason") else "")
    for case, record in cell.outcomes().items():
        if record["verdict"] != Verdict.PASS.value:
            yield from _outcome(case, record, expectations)


def _outcome(name: str, record: Record, expectations: Sequence[Expectation]) -> Iterator[str]:
    entry = covering(record, expectations)
    known = f" (expected: {one_line(entry.reason, 120)})" if entry is not None else ""
    yield f"  {record['verdict']:<11} {name}{known}"
    if record["reason"]:
        yield f"              {one_line(record['reason'], 300)}"
    if record["blame"]:
        blame = record["blame"]
        yield f"              {blame['file']}:{blame['line']}: {one_line(str(blame['source']), 160)}"
    counted = record["device_ops"]
    if counted is not None:
        yield f"              {_counted(counted)}"
    for label, observed in sorted(record["observations"].items()):
        yield f"              {label} = {_value(observed)}"


def _counted(ops: dict[str, object]) -> str:
    """How many ops ran on the cell's device, and which fell back."""
    fallback = ops["fallback"] if isinstance(ops["fallback"], list) else []
    ran = "ops were not counted" if ops["on"] is None else f"{ops['on']} ops ran on the device"
    return one_line(f"{ran}, on the CPU instead: {', '.join(map(str, fallback))}" if fallback else ran, 300)


def _value(observed: dict[str, object]) -> str:
    if observed.get("kind") == "tensor":
        return f"{observed.get('dtype')}{observed.get('shape')} digest {observed.get('digest')}"
    return one_line(str(observed.get("value", observed.get("digest"))), 120)
