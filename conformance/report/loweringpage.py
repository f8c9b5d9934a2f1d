"""The page of lowering: per model a ladder of stages over releases with the line to blame, per obstacle its idiom pair and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.artifacts import Record
from conformance.columns import Column
from conformance.incell.verdicts import Verdict
from conformance.ladders import STAGES, Rung, ladder, stopped
from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.sources import CaseSource
from conformance.report.view import Row, View


@dataclass(frozen=True)
class Climb:
    """One case with its rung in each column that has the family, and what stands where there is none."""

    row: Row
    rungs: list[Rung | None]
    verdicts: list[str]

    @property
    def cells(self) -> Iterator[tuple[Rung | None, str]]:
        """Each rung with the verdict of its record; empty where there is no record."""
        return zip(self.rungs, self.verdicts)


@dataclass(frozen=True)
class Stop:
    """What stopped cases at one stage, for one reason and at one line: `rung` is the first, `where` has the releases of each case."""

    rung: Rung
    where: dict[str, list[str]]


@dataclass(frozen=True)
class Section:
    """One model or obstacle: its cases, and what stopped them."""

    climbs: list[Climb]
    stops: list[Stop]


def lowering_page(view: View) -> str:
    """The HTML of the page."""
    whole = [place for start, group in zip(view.starts, view.groups) for place in reversed(range(start, start + len(group.columns)))]
    places = [place for place in whole if _has_family(view.columns[place])]  # the newest first
    climbs = [_climb(row, [row.records[place] for place in places]) for row in view.families.get("lowering", [])]
    climbs = [climb for climb in climbs if any(climb.rungs)]
    models: dict[str, list[Climb]] = {}
    obstacles: dict[str, list[Climb]] = {}
    for climb in climbs:
        held, name = (models, climb.row.subject) if climb.row.subject else (obstacles, climb.row.function)
        held.setdefault(name, []).append(climb)
    columns = [view.columns[place] for place in places]
    counts = [stopped(climb.rungs[number] for climb in climbs) for number in range(len(columns))]
    pairs = {name: view.sources.get(name) for name in obstacles}
    sections = {
        name: {key: Section(each, stops(each, columns)) for key, each in held.items()}
        for name, held in (("models", models), ("obstacles", obstacles))
    }
    return render(
        "lowering.html.j2",
        addresses.LOWERING,
        view=view,
        stages=(*STAGES, "passed"),
        columns=columns,
        counts=counts,
        pairs=_shown(pairs),
        **sections,
    )


def _climb(row: Row, records: list[Record | None]) -> Climb:
    return Climb(row, ladder(records), [record["verdict"] if record else "" for record in records])


def stops(climbs: list[Climb], columns: list[Column]) -> list[Stop]:
    """What stopped `climbs`, each once with the cases and the releases, in the order of the cases."""
    found: dict[tuple[str, str, str, str], Stop] = {}
    for climb in climbs:
        for each, column in zip(climb.rungs, columns, strict=True):
            if each is not None and each.verdict != Verdict.PASS.value:
                stop = found.setdefault((each.verdict, each.stage, each.reason, each.blame), Stop(each, {}))
                stop.where.setdefault(climb.row.case, []).append(column.cell.torch)
    return list(found.values())


def _has_family(column: Column) -> bool:
    return any(record["family"] == "lowering" for record in column.outcomes.values())


def _shown(pairs: dict[str, CaseSource | None]) -> dict[str, CaseSource]:
    """Those obstacles whose source is at hand: their docstring tells the article's line, and they name their idioms."""
    return {name: source for name, source in pairs.items() if source is not None}
