"""The report: a site, and files for other programs. A pure function of results, expectations and the sources of cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance.expectations import Expectation
from conformance.gate import Judgement
from conformance.plan import CaseFile
from conformance.results import ResultSet

__all__ = ["build"]


def build(result: ResultSet, expectations: Sequence[Expectation], judgement: Judgement, out: Path, files: Iterable[CaseFile] = ()) -> Path:
    """Writes the site and the files beside it under `out`; returns the path of the page to open.

    `files` are the files of cases, whose sources the pages show. Equal arguments give equal bytes: every date comes from the records.
    """
    from conformance import guardneeds
    from conformance.report.files import write_files
    from conformance.report.folder import write
    from conformance.report.site import pages
    from conformance.report.sources import read_files
    from conformance.report.view import View

    view = View(result, expectations, judgement, read_files(files), guardneeds.guards(), guardneeds.ways())
    write(out / "site", pages(view))
    write_files(result, expectations, judgement, out)
    return out / "site" / "index.html"
