"""The page of one release: all that changed against the release before it, by cause, worse and better apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.version import Version

from conformance.report import addresses
from conformance.report.bits import Series
from conformance.report.rendering import render
from conformance.report.view import View


def release_pages(view: View, series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Address and HTML of the page of each release that was measured."""
    for release in view.releases:
        address = addresses.release(str(release))
        yield (
            address,
            render(
                "release.html.j2",
                address,
                view=view,
                release=release,
                steps=[pair for pair in view.transitions if pair[1].version == release],
                bits=[(each, change) for each in series for change in each.changes if change.at == release],
                columns=[column for column in view.columns if column.version == release],
                neighbours=_neighbours(view.releases, release),
            ),
        )


def _neighbours(releases: Sequence[Version], release: Version) -> tuple[Version | None, Version | None]:
    """The measured releases before and after."""
    place = releases.index(release)
    return (releases[place - 1] if place else None, releases[place + 1] if place + 1 < len(releases) else None)
