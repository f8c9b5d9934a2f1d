"""The page of one case: what it asks, what came out where, and how to see it happen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

from conformance.answers.case import command
from conformance.artifacts import Record
from conformance.columns import Column, Group
from conformance.compare import classes, said
from conformance.differences import number_of
from conformance.incell.verdicts import Verdict
from conformance.report import addresses
from conformance.report.plots import Plot
from conformance.report.rendering import render
from conformance.report.scripts import Script, script
from conformance.report.timeline import Span, Timeline, timelines
from conformance.report.upstream import issue
from conformance.report.view import Row, View
from conformance.transitions import Edge, edges, history

#: Variants that are listed on each other's pages; of more, the family's page holds the list.
LISTED = 40
#: Characters of a case's last output that its page shows.
OUTPUT = 3000


#: A group of columns, the name of an observation, and what was observed at each release.
Observed = tuple[Group, str, list[tuple[str, object]]]


@dataclass(frozen=True)
class Lane:
    """One row of the grid of devices by releases: a span, or None for releases that this row has no column for, with its width."""

    timeline: Timeline
    cells: list[tuple[Span | None, int]]


@dataclass(frozen=True)
class Texts:
    """A text, or a digest's class, that was observed over the releases of a group: runs of equal values."""

    name: str
    group: str
    runs: list[tuple[str, str]]


def case_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of the page of every case."""
    variants: dict[str, list[Row]] = defaultdict(list)
    for row in view.rows.values():
        variants[row.function].append(row)
    for row in view.rows.values():
        address = addresses.case(row.case)
        column, record = _telling(view, row)
        standalone = script(view, row, column, record)
        yield address, _page(view, row, variants[row.function], address, column, record, standalone)
        if standalone is not None:
            yield standalone.address, standalone.text


def _page(view: View, row: Row, variants: list[Row], address: str, column: Column, record: Record, standalone: Script | None) -> str:
    """`column` and `record` are those to reproduce."""
    lines = [line for line in timelines(view, row) if line.known]
    seen = list(_observed(view, row))
    source = view.sources.get(row.function)
    return render(
        "case.html.j2",
        address,
        view=view,
        row=row,
        title=row.title or (source.title if source else ""),
        source=source,
        releases=(releases := _releases(lines)),
        lanes=(lanes := [Lane(line, cells) for line in lines for cells in _lanes(line, releases)]),
        gaps=any(span is None or span.record is None for lane in lanes for span, _ in lane.cells),
        lines=lines,
        edges=list(_edges(view, row)),
        plots=list(_plots(view, seen)),
        texts=list(_texts(view, seen)),
        variants=variants if len(variants) <= LISTED else [],
        siblings=len(variants),
        record=record,
        output=str(record["output_tail"])[-OUTPUT:],
        command=command(column.cell, row.case),
        twins=f"{command(column.cell, row.case)} --twins",
        script=standalone,
        issue=issue(column, row, record, lines, source, standalone) if Verdict(record["verdict"]).deviates else "",
    )


def _telling(view: View, row: Row) -> tuple[Column, Record]:
    """The column to reproduce in: the newest in which the case deviates, else the newest that has it."""
    have = [(column, record) for column, record in zip(view.columns, row.records) if record is not None]
    deviating = [pair for pair in have if Verdict(pair[1]["verdict"]).deviates]
    return max(deviating or have, key=lambda pair: (pair[0].version, pair[0].cell.device == "cpu"))


def _releases(lines: list[Timeline]) -> list[Version]:
    return sorted({column.version for line in lines for column in line.group.columns}, reverse=True)


def _lanes(line: Timeline, releases: list[Version]) -> Iterator[list[tuple[Span | None, int]]]:
    """The spans of a group laid out over all `releases`; columns of one release beside each other go into rows below each other."""
    by_release: dict[Version, list[Span]] = defaultdict(list)
    for each in line.spans:
        for column in each.columns:
            by_release[column.version].append(each)
    for lane in range(max(map(len, by_release.values()))):
        cells: list[tuple[Span | None, int]] = []
        for release in releases:
            here = by_release.get(release, [])
            span = here[lane] if lane < len(here) else None
            if cells and cells[-1][0] is span:
                cells[-1] = (span, cells[-1][1] + 1)
            else:
                cells.append((span, 1))
        yield cells


def _edges(view: View, row: Row) -> Iterator[tuple[Group, Edge]]:
    """The neighbours on both sides of every break and every cure, in each group of columns."""
    if len(row.verdicts) == 1:
        return
    for group in view.groups:
        planned = [column.version for column in group.columns]
        yield from ((group, edge) for edge in edges(history(group, row.case), planned))


def _observed(view: View, row: Row) -> Iterator[Observed]:
    """For each group and name, the observation in each column that has it."""
    for group, records in view.split(row):
        found: dict[str, list[tuple[str, object]]] = defaultdict(list)
        for column, record in zip(group.columns, records, strict=True):
            for name, observed in record["observations"].items() if record else ():
                found[name].append((column.cell.torch, observed))
        for name, seen in found.items():
            yield group, name, seen


def _plots(view: View, observed: Sequence[Observed]) -> Iterator[Plot]:
    for group, name, seen in observed:
        points = [(release, value) for release, each in seen if (value := number_of(each)) is not None]
        if points:
            better = next((str(each["better"]) for _, each in seen if isinstance(each, dict) and each.get("better")), "")
            yield Plot(name, view.label(group), better, points, [column.version for column in group.columns])


def _texts(view: View, observed: Sequence[Observed]) -> Iterator[Texts]:
    for group, name, seen in observed:
        values = {Version(release): _text(each) for release, each in seen if number_of(each) is None}
        runs = classes({release: text for release, text in values.items() if text is not None})
        if runs:
            planned = [column.version for column in group.columns]
            told = [(said(run.releases, planned), f"class {run.label}" if _is_digest(seen[0][1]) else run.digest) for run in runs]
            yield Texts(name, view.label(group), told)


def _is_digest(observed: object) -> bool:
    return isinstance(observed, dict) and "digest" in observed


def _text(observed: object) -> str | None:
    if not isinstance(observed, dict):
        return None
    value = observed.get("digest", observed.get("value"))
    return None if value is None else str(value)
