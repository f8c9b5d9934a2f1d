"""The page of guards: for each, where torch needs it, where it is dead, and from which floor on it may go."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from packaging.version import Version

from conformance.guardneeds import Need, minor, needs
from conformance.incell.verdicts import Verdict
from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.view import Row, View
from conformance.selectors import matches

_PASS, _UNSUPPORTED = Verdict.PASS, Verdict.UNSUPPORTED


@dataclass(frozen=True)
class Stretch:
    """Releases side by side, `width` of all, on which doing without a guard comes to the same; no verdict where it was not measured."""

    verdict: Verdict | None
    width: int

    @property
    def said(self) -> str:
        """What that means for who has the guard."""
        if self.verdict is None:
            return "not measured"
        return {_PASS: "not needed", _UNSUPPORTED: "needed, absent", Verdict.WRONG: "needed, silent"}.get(self.verdict, "needed, loud")


@dataclass(frozen=True)
class Told:
    """One guard: what it does, in which ways one may do without it and where, and the cases that go through it."""

    name: str
    text: str
    needs: list[tuple[Need, list[Stretch], list[Row]]]
    through: list[Row]

    @property
    def measured(self) -> list[Need]:
        """The needs that say something."""
        return [need for need, _, _ in self.needs if need.measured]

    @property
    def easiest(self) -> tuple[tuple[int, Version], str]:
        """When it may go by the way that takes it first, and which way that is: 0 any time, 1 from that release on, 2 not yet."""
        ways = dict.fromkeys(need.way.way for need in self.measured)
        return min(((_when([need for need in self.measured if need.way.way == way]), way) for way in ways), key=lambda pair: pair[0])


def guard_page(view: View) -> str:
    """The HTML of the page: what may go first at the top."""
    found = told(view)
    by_floor: dict[str, list[tuple[Told, str]]] = {}
    for each in sorted((each for each in found if each.measured), key=lambda each: each.easiest[0]):
        when, way = each.easiest
        by_floor.setdefault(_heading(*when), []).append((each, way))
    groups = [group for group in view.groups if any(need.group is group for each in found for need in each.measured)]
    values = {"by_floor": by_floor, "found": [each for each in found if each.measured], "groups": groups}
    return render("guards.html.j2", addresses.GUARDS, view=view, looks=LOOKS, rest=[each for each in found if not each.measured], **values)


def told(view: View) -> list[Told]:
    """What the records say of each guard, by name."""
    rows = list(view.rows.values())
    found = []
    for name, text in sorted(view.guards.items(), key=lambda item: item[0].lower()):
        without: set[str] = set()
        here = []
        for need in needs(view.groups, view.ways, name):
            cases = [row for row in rows if any(matches(pattern, row.case) for pattern in need.way.cases)]
            without.update(row.function for row in cases)
            here.append((need, _stretches(need, view.releases[::-1]), cases))
        users = {case for case, source in view.sources.items() if name in source.guards} - without
        through = [row for row in rows if row.function in users]
        found.append(Told(name, text, here, through))
    return found


def _stretches(need: Need, releases: list[Version]) -> list[Stretch]:
    ran = set(need.measured)
    verdicts = [need.verdicts[release] if release in ran else None for release in releases]
    return [Stretch(verdict, len(list(same))) for verdict, same in groupby(verdicts)]


def _when(needs: list[Need]) -> tuple[int, Version]:
    """When one way will do on every device: 0 any time, 1 once the floor is that release, 2 not yet: the newest of a device needs it."""
    needed = [version for need in needs for version in need.needed]
    if not needed:
        return 0, Version("0")
    after = [version for need in needs for version in need.measured if version > max(needed)]
    if not after or any(need.droppable is None for need in needs):
        return 2, Version("0")
    return 1, min(after)


def _heading(kind: int, release: Version) -> str:
    if kind == 1:
        return f"May go once your floor is torch {minor(release)}"
    return "Needed on no release that was measured" if kind == 0 else "May not go yet"


#: The class that gives the colour, and the sign, of what doing without a guard comes to.
LOOKS = {
    "needed, silent": ("wrong", "✕"),
    "needed, loud": ("raises", "!"),
    "needed, absent": ("timeout", "○"),
    "not needed": ("pass", "✓"),
    "not measured": ("none", "·"),
}
