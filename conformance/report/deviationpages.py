"""The pages of deviations: each kind of failure once with the cases that it strikes, and what the gate says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from conformance.incell.verdicts import Verdict
from conformance.report import addresses, paging
from conformance.report.deviations import kinds
from conformance.report.rendering import render
from conformance.report.view import View

#: Struck cases of one page.
BUDGET = 1500


def deviation_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of each part; the first also holds the gate's findings and what could not be read."""
    found = kinds(view.groups, view.expectations)
    problems = bool(view.result.all_problems() or view.result.conflicts)
    address = partial(addresses.part, addresses.DEVIATIONS)
    words = [verdict.value for verdict in Verdict if any(kind.verdict is verdict for kind in found)]
    values = {"view": view, "kinds": len(found), "problems": problems, "occurring": [(word, word) for word in words]}
    for part in paging.parts(found, lambda kind: 3 + len(kind.struck), BUDGET, address, lambda kind: kind.verdict.value):
        yield part.address, render("deviations.html.j2", part.address, part=part, **values)
