"""The page of lowering: per model a ladder of stages over releases with the line to blame, per obstacle its idiom pair and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.columns import Column
from conformance.ladders import STAGES, Rung, ladder, stopped
from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.sources import CaseSource
from conformance.report.view import Row, View


@dataclass(frozen=True)
class Climb:
    """One case with its rung in each column that has the family."""

    row: Row
    rungs: list[Rung | None]

    @property
    def told(self) -> list[Rung]:
        """What stopped it, each once: by stage, reason and line."""
        found = {(each.stage, each.reason, each.blame): each for each in self.rungs if each is not None and each.verdict != "pass"}
        return list(found.values())


def lowering_page(view: View) -> str:
    """The HTML of the page."""
    places = [place for place, column in enumerate(view.columns) if _has_family(column)]
    climbs = [Climb(row, ladder([row.records[place] for place in places])) for row in view.families.get("lowering", [])]
    climbs = [climb for climb in climbs if any(climb.rungs)]
    models: dict[str, list[Climb]] = {}
    obstacles: dict[str, list[Climb]] = {}
    for climb in climbs:
        held, name = (models, climb.row.subject) if climb.row.subject else (obstacles, climb.row.function)
        held.setdefault(name, []).append(climb)
    columns = [view.columns[place] for place in places]
    counts = [stopped(climb.rungs[number] for climb in climbs) for number in range(len(columns))]
    pairs = {name: view.sources.get(name) for name in obstacles}
    tables = {"columns": columns, "counts": counts, "models": models, "obstacles": obstacles, "pairs": _shown(pairs)}
    return render("lowering.html.j2", addresses.LOWERING, view=view, stages=(*STAGES, "passed"), **tables)


def _has_family(column: Column) -> bool:
    return any(record["family"] == "lowering" for record in column.outcomes.values())


def _shown(pairs: dict[str, CaseSource | None]) -> dict[str, CaseSource]:
    """Those obstacles whose source is at hand: their docstring tells the article's line, and they name their idioms."""
    return {name: source for name, source in pairs.items() if source is not None}
