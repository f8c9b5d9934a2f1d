"""Fragments: for each case a page small enough for an iframe in somebody's documentation; no script, no other file."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.timeline import timelines
from conformance.report.view import View


def fragments(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of the fragment of each case."""
    for row in view.rows.values():
        lines = [timeline for timeline in timelines(view, row) if timeline.known]
        address = addresses.fragment(row.case)
        yield address, render("fragment.html.j2", address, view=view, row=row, lines=lines)
