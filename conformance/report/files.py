"""The files beside the site, for other programs and pages; docs/files.md says what is in each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.artifacts import encode, write_bytes, write_chunks
from conformance.columns import groups
from conformance.expectations import Expectation
from conformance.frame import csv_chunks
from conformance.gate import Judgement
from conformance.report import badranges, junit, matrixjson
from conformance.report.badge import badge, svg
from conformance.report.feed import feed
from conformance.report.summary import summary
from conformance.results import ResultSet


def write_files(result: ResultSet, expectations: Sequence[Expectation], judgement: Judgement, out: Path) -> None:
    """Writes matrix.csv, matrix.json, bad-ranges.json, junit.xml, changes.atom, summary.md, badge.json and badge.svg under `out`.

    Equal arguments give equal bytes: every date in them comes from the records.
    """
    columns = groups(result)
    told = badge(result, judgement)
    write_chunks(out / "matrix.csv", csv_chunks(result, expectations))
    write_chunks(out / "matrix.json", matrixjson.chunks(columns, expectations))
    write_bytes(out / "bad-ranges.json", encode(badranges.table(columns), indent=1) + b"\n")
    write_chunks(out / "junit.xml", junit.chunks(columns, expectations))
    write_bytes(out / "changes.atom", feed(columns).encode())
    write_bytes(out / "summary.md", summary(result, expectations, judgement).encode())
    write_bytes(out / "badge.json", encode(told, indent=1) + b"\n")
    write_bytes(out / "badge.svg", svg(told).encode())
