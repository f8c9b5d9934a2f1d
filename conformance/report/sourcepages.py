"""The pages of sources: each file of cases with its lines numbered, so that a link leads to the very line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.sources import SourceFile


def source_pages(files: Sequence[SourceFile]) -> Iterator[tuple[str, str]]:
    """Address and HTML of the page of each file."""
    for file in files:
        address = addresses.source(file.file_case)
        yield address, render("source.html.j2", address, file=file)
