"""The page of one release: all that changed against the release before it, by cause, worse and better apart; in parts where it is long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from packaging.version import Version

from conformance.answers.difference import one_sided
from conformance.columns import Group
from conformance.differences import Cause, Difference
from conformance.report import addresses, paging
from conformance.report.rendering import render
from conformance.report.view import View
from conformance.transitions import Transition

#: Lines of one page: about what a browser lays out in a second.
BUDGET = 1500
#: The lists of a difference, in the order of the page.
_LISTS = tuple(field.name for field in fields(Difference) if field.name != "compared")
EARLIER = "against older releases"


@dataclass(frozen=True)
class Line:
    """One thing that changed: the place of its step among those of the release, the list that it stands in, and what it is."""

    place: int
    kind: str
    what: Any

    @property
    def weight(self) -> int:
        """How many lines of a page it takes."""
        return 4 + 2 * len(self.what.moves) if isinstance(self.what, Cause) else 1


@dataclass(frozen=True)
class Section:
    """A step, and what of it one page shows; `earlier` is what moved against a release before the one that it is compared with."""

    group: Group
    step: Transition
    shown: Difference
    earlier: list[Cause]

    @property
    def one_sided(self) -> list[tuple[str, list[str]]]:
        """What was not compared, in words, with the cases that this page lists."""
        sides = str(self.step.previous), str(self.step.version)
        return list(one_sided(self.shown, *sides))


def release_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of the pages of each release that was measured."""
    for release in view.releases:
        steps = [pair for pair in view.transitions if pair[1].version == release]
        lines = [line for place, (_, step) in enumerate(steps) for line in _lines(place, step)]
        values = {"view": view, "release": release, "neighbours": _neighbours(view.releases, release)}
        values["columns"] = [column for column in view.columns if column.version == release]
        label = partial(_label, view, steps)
        for part in paging.parts(lines, lambda line: line.weight, BUDGET, partial(addresses.release, str(release)), label):
            yield part.address, render("release.html.j2", part.address, part=part, sections=_sections(steps, part), **values)


def _lines(place: int, step: Transition) -> Iterator[Line]:
    """The lines of one step; a cause of very many cases is several."""
    most = BUDGET // 4
    for kind in (*_LISTS, EARLIER):
        listed = step.earlier if kind == EARLIER else getattr(step.difference, kind)
        if kind == "numbers":
            listed = sorted(listed, key=lambda move: move.worse, reverse=True)
        for each in listed:
            moves = each.moves if isinstance(each, Cause) else []
            shares = [replace(each, moves=moves[start : start + most]) for start in range(0, len(moves), most)]
            yield from (Line(place, kind, what) for what in shares or [each])


def _sections(steps: Sequence[tuple[Group, Transition]], part: paging.Part[Line]) -> list[Section]:
    """What one page shows of each step; the first has also those where nothing changed."""
    found = []
    for place, (group, step) in enumerate(steps):
        here = [line for line in part.items if line.place == place]
        if here or (part.number == 1 and step.difference.silent and not step.earlier):
            lists = {kind: [line.what for line in here if line.kind == kind] for kind in _LISTS}
            earlier = [line.what for line in here if line.kind == EARLIER]
            found.append(Section(group, step, Difference(**lists, compared=step.difference.compared), earlier))
    return found


def _label(view: View, steps: Sequence[tuple[Group, Transition]], line: Line) -> str:
    return f"{view.label(steps[line.place][0])}, {line.kind}"


def _neighbours(releases: Sequence[Version], release: Version) -> tuple[Version | None, Version | None]:
    """The measured releases before and after."""
    place = releases.index(release)
    return (releases[place - 1] if place else None, releases[place + 1] if place + 1 < len(releases) else None)
