"""The report: a site, a table, a summary and a badge. A pure function of results and expectations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.artifacts import encode, write_bytes
from conformance.expectations import Expectation
from conformance.gate import Judgement
from conformance.results import ResultSet

__all__ = ["build"]


def build(result: ResultSet, expectations: Sequence[Expectation], judgement: Judgement, out: Path) -> Path:
    """Writes site/index.html, matrix.csv, summary.md and badge.json under `out`; returns the path of the page to open.

    Equal arguments give equal bytes: every date in the report comes from the records.
    """
    from conformance.frame import as_csv
    from conformance.report.page import pages
    from conformance.report.summary import badge, summary

    for name, text in pages(result, expectations, judgement).items():
        write_bytes(out / "site" / name, text.encode())
    write_bytes(out / "matrix.csv", as_csv(result, expectations).encode())
    write_bytes(out / "summary.md", summary(result, expectations, judgement).encode())
    write_bytes(out / "badge.json", encode(badge(result, judgement), indent=1) + b"\n")
    return out / "site" / "index.html"
