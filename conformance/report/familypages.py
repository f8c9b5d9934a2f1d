"""The pages of one family and of one model: every case over every column, in parts where one page would be heavy."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from conformance import apis
from conformance.artifacts import Record
from conformance.incell.verdicts import Verdict
from conformance.report import addresses, paging
from conformance.report.rendering import render
from conformance.report.timeline import Span, Timeline, timelines
from conformance.report.view import Row, View

#: Spans of one page: about what a browser lays out in a second.
BUDGET = 6000
#: What the filter calls a verdict, where its own name does not say all.
_SAID = {Verdict.WRONG: "silent: wrong"}


@dataclass(frozen=True)
class Line:
    """One case of a table: its timelines, and what there is to say about what is not a plain pass."""

    row: Row
    timelines: list[Timeline]

    @property
    def weight(self) -> int:
        """How many spans it draws."""
        return 2 + sum(len(each.spans) for each in self.timelines)

    @property
    def known(self) -> list[Timeline]:
        """The timelines of the groups of columns that have the case."""
        return [each for each in self.timelines if each.known]

    @property
    def told(self) -> list[tuple[Timeline, Span]]:
        """Where it deviates, and why; reasons of what is unsupported stand on the case's own page."""
        return [(each, span) for each in self.timelines for span in each.spans if span.deviates]


def family_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of the pages of each family."""
    for name, rows in view.families.items():
        yield from _table(view, rows, f"Family {name}", partial(addresses.family, name))


def subject_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of the pages of each model, and of the list of models."""
    for name, rows in view.subjects.items():
        recorded = (row.records for row in rows if row.function == apis.RECORDING)
        touches = [touch for records in recorded for touch in _touches(view, records)]
        yield from _table(view, rows, f"Model {name}", partial(addresses.subject, name), touches)


def _touches(view: View, records: list[Record | None]) -> list[apis.Touch]:
    """The APIs that a model calls and that the lowest release it ran on has not."""
    known = {column.version: record for column, record in zip(view.columns, records) if record is not None}
    return apis.recorded(known, str(min(known))) if known else []


def _table(
    view: View, rows: list[Row], heading: str, address: Callable[[int], str], touches: Sequence[apis.Touch] = ()
) -> Iterator[tuple[str, str]]:
    lines = [Line(row, list(timelines(view, row))) for row in rows]
    used = [any(line.timelines[index].known for line in lines) for index in range(len(view.groups))]
    groups = [group for group, has in zip(view.groups, used) if has]
    for line in lines:
        line.timelines[:] = [each for each, has in zip(line.timelines, used) if has]
    values = {"view": view, "heading": heading, "groups": groups, "cases": len(rows), "deviating": sum(row.deviates for row in rows)}
    values["touches"] = touches
    values["releases"] = sorted({column.version for group in groups for column in group.columns}, reverse=True)
    occurring = set().union(*(row.verdicts for row in rows))
    values["occurring"] = [(verdict.value, _SAID.get(verdict, verdict.value)) for verdict in Verdict if verdict.value in occurring]
    width = sum(len(group.columns) for group in groups)
    parts = list(paging.parts(lines, lambda line: line.weight, BUDGET, address, lambda line: line.row.function))
    values["counts"] = [json.dumps(_counts(view, part.items), sort_keys=True) for part in parts] if len(parts) > 1 else []
    for part in parts:
        yield part.address, render("family.html.j2", part.address, part=part, width=width, **values)


def _counts(view: View, lines: Sequence[Line]) -> dict[str, int]:
    """`verdict@release@device` -> how many cases of a part came to it, for the filter on the other parts; a lone device has no name."""
    several = len(lines[0].timelines) > 1 if lines else False
    found: Counter[str] = Counter()
    for line in lines:
        spans = ((each, span) for each in line.timelines for span in each.spans if span.deviates)
        found.update(
            {
                f"{span.verdict}@{column.cell.torch}@{view.label(each.group) if several else ''}"
                for each, span in spans
                for column in span.columns
            }
        )
    return dict(found)
