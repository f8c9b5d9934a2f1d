"""The report: a site, a table, a summary and a badge. A pure function of results and expectations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.artifacts import write_bytes
from conformance.expectations import Expectation
from conformance.gate import Judgement
from conformance.results import ResultSet

__all__ = ["build"]


def build(result: ResultSet, expectations: Sequence[Expectation], judgement: Judgement, out: Path) -> Path:
    """Writes site/index.html and the files beside it under `out`; returns the path of the page to open.

    Equal arguments give equal bytes: every date in the report comes from the records.
    """
    from conformance.report.files import write_files
    from conformance.report.page import pages

    for name, text in pages(result, expectations, judgement).items():
        write_bytes(out / "site" / name, text.encode())
    write_files(result, expectations, judgement, out)
    return out / "site" / "index.html"
