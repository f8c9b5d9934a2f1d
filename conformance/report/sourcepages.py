"""The pages of sources: each file of cases with its lines numbered, so that a link leads to the very line."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.view import View


def source_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of the page of each file."""
    for file in view.files:
        address = addresses.source(file.file_case)
        yield address, render("source.html.j2", address, view=view, file=file)
