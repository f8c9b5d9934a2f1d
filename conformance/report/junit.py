"""junit.xml: a test suite for each cell, as CI systems read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from conformance import __version__
from conformance.artifacts import Record
from conformance.columns import Column, Group
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.incell.records import SCHEMA
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line, visible
from conformance.reasons import blamed, blamed_source, exception_of, reason_of

#: Verdict -> the element of a test case. What is expected becomes `skipped`, with the reason why.
_ELEMENTS = {
    Verdict.WRONG: "failure",
    Verdict.CRASH: "failure",
    Verdict.RAISES: "failure",
    Verdict.TIMEOUT: "failure",
    Verdict.UNEXERCISED: "failure",
    Verdict.ERROR: "error",
    Verdict.MISSING: "error",
    Verdict.UNSUPPORTED: "skipped",
}
_ATTRIBUTE = 500


def chunks(groups: Sequence[Group], expectations: Sequence[Expectation]) -> Iterator[bytes]:
    """The file in pieces: equal arguments give equal bytes."""
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<!-- torch-conformance {__version__}, schema {SCHEMA} -->\n'.encode()
    yield b'<testsuites name="torch-conformance">\n'
    for group in groups:
        for column in group.columns:
            yield from (line.encode() + b"\n" for line in _suite(column, expectations))
    yield b"</testsuites>\n"


def _suite(column: Column, expectations: Sequence[Expectation]) -> Iterator[str]:
    entries = {case: covering(record, expectations) for case, record in column.outcomes.items()}
    counted = Counter(_element(record, entries[case]) for case, record in column.outcomes.items())
    seconds = sum(float(record["duration_s"]) for record in column.outcomes.values())
    started = min((str(record["started_at"]) for record in column.outcomes.values() if record["started_at"]), default="")
    counts = {"tests": len(column.outcomes), **{f"{name}s": counted[name] for name in ("failure", "error")}, "skipped": counted["skipped"]}
    told = "".join(f' {name}="{count}"' for name, count in counts.items())
    when = f" timestamp={_attribute(started[:19])}" if started else ""
    yield f'  <testsuite name={_attribute(str(column.cell))}{told} time="{seconds:.3f}"{when}>'
    for case, record in column.outcomes.items():
        yield from _case(case, record, entries[case])
    yield "  </testsuite>"


def _element(record: Record, entry: Expectation | None) -> str:
    verdict = Verdict(record["verdict"])
    return "skipped" if entry is not None and verdict.deviates else _ELEMENTS.get(verdict, "")


def _case(case: str, record: Record, entry: Expectation | None) -> Iterator[str]:
    element = _element(record, entry)
    head = f'    <testcase classname={_attribute(record["family"])} name={_attribute(case)} time="{float(record["duration_s"]):.4f}"'
    if not element:
        yield f"{head}/>"
        return
    why = reason_of(record)
    expected = entry is not None and element == "skipped"
    message = f"expected {record['verdict']}: {entry.reason} ({entry.link})" if entry and expected else why
    yield f"{head}>"
    kind = "" if element == "skipped" else f" type={_attribute(record['verdict'])}"
    yield f"      <{element}{kind} message={_attribute(message)}>{_text(record)}</{element}>"
    yield "    </testcase>"


def _text(record: Record) -> str:
    """All that the record says of why, as the text of its element."""
    exception = exception_of(record)
    place = f"{blamed(record)}: {blamed_source(record)}" if record["blame"] else ""
    parts = [record["reason"], exception if exception not in record["reason"] else "", place, record["output_tail"]]
    return escape(visible("\n".join(part for part in parts if part)))


def _attribute(text: str) -> str:
    return quoteattr(one_line(text, _ATTRIBUTE))
