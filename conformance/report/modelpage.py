"""The page of models: each with its counts over releases and devices, and the way to its whole story."""

from __future__ import annotations

from packaging.version import Version

from conformance.report import addresses
from conformance.report.frontpage import Tally, tally
from conformance.report.rendering import render
from conformance.report.view import Row, View


def model_page(view: View) -> str:
    """The HTML of the page."""
    models = [(name, rows, _lanes(view, rows)) for name, rows in view.subjects.items()]
    return render("models.html.j2", addresses.MODELS, view=view, models=models)


def _lanes(view: View, rows: list[Row]) -> list[tuple[str, list[Tally | str]]]:
    """For each group of columns that ran the model, its tally at each release, the worst of several cells, or why there is none."""
    found = []
    for group, start in zip(view.groups, view.starts, strict=False):
        at: dict[Version, Tally] = {}
        for index, column in enumerate(group.columns, start):
            each = tally(view, rows, index)
            held = at.get(column.version)
            if each is not None and (held is None or each.worst.severity < held.worst.severity):
                at[column.version] = each
        if at:
            ran = {column.version for column in group.columns if column.measured}
            without = {release: "not asked" if release in ran else "not measured" for release in view.releases}
            found.append((view.label(group), [at.get(release) or without[release] for release in reversed(view.releases)]))
    return found
