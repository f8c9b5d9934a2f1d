"""The site: every page of it, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.report import addresses, bits, searchindex
from conformance.report.bitpages import bit_pages
from conformance.report.casepages import case_pages
from conformance.report.deviationpages import deviation_pages
from conformance.report.environmentpage import environment_page
from conformance.report.familypages import family_pages, subject_pages
from conformance.report.fragments import fragments
from conformance.report.frontpage import front_pages
from conformance.report.guardpage import guard_page
from conformance.report.loweringpage import lowering_page
from conformance.report.modelpage import model_page
from conformance.report.oppage import op_lines, op_page
from conformance.report.releasepages import release_pages
from conformance.report.rendering import TEMPLATES
from conformance.report.sourcepages import source_pages
from conformance.report.view import View


def pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and text of every file of the site, one at a time; equal views give equal texts."""
    series = bits.series(view.groups)
    yield from front_pages(view)
    yield from family_pages(view)
    yield from subject_pages(view)
    yield from release_pages(view)
    yield from bit_pages(view, series)
    yield from deviation_pages(view)
    yield addresses.GUARDS, guard_page(view)
    yield addresses.MODELS, model_page(view)
    operators = op_lines(view) if view.asks_of_mps else []
    if view.asks_of_mps:
        yield addresses.OPERATORS, op_page(view, operators)
    yield addresses.LOWERING, lowering_page(view)
    yield addresses.ENVIRONMENTS, environment_page(view)
    yield from case_pages(view)
    yield from fragments(view)
    yield from source_pages(view)
    yield from searchindex.files(view, operators)
    for name in ("site.css", "site.js"):
        yield name, (TEMPLATES / name).read_text(encoding="utf-8")
