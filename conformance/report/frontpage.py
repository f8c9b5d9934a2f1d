"""The front page: the answer, where to look, what changed last, and what nobody measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

from conformance.columns import Column, Group
from conformance.config import DEVICES
from conformance.incell.verdicts import Verdict
from conformance.report import addresses
from conformance.report.headline import headline
from conformance.report.rendering import render
from conformance.report.view import Row, View

#: Cells of its tables that the front page has room for; of more it shows the newest columns of each device, and says where all are.
MOST_CELLS = 175
#: The share of a family that a column may lack without a word.
FEW_ABSENT = 0.1
#: Causes of the newest changes that the front page lists; the release's page has all.
CAUSES = 5


@dataclass(frozen=True)
class Tally:
    """One family in one column: the worst verdict and how many came to it, how many deviate at all, and how many of those unexpectedly.

    `files` counts records that stand for a whole file, whose number of cases nobody knows. `absent` counts cases that other columns of the
    device have and this one has not, where they are a part of the family that one misses.
    """

    cases: int
    deviating: int
    worst: Verdict
    number: int
    unexpected: int
    files: int
    absent: int


@dataclass(frozen=True)
class Machine:
    """Columns of one device that were measured on machines that look alike: how many, when, on what, and whether controls came out."""

    group: Group
    cells: int
    system: str
    since: str
    until: str
    controls: str


def front_pages(view: View) -> Iterator[tuple[str, str]]:
    """Address and HTML of index.html, whole in itself but for search, and of the whole table where the front page has a part of it."""
    newest = view.releases[-1] if view.releases else None
    tallies = {name: [tally(view, rows, index) for index in range(len(view.columns))] for name, rows in view.families.items()}
    ends = [(group, start, start + len(group.columns)) for group, start in zip(view.groups, view.starts, strict=False)]
    whole = [(group, list(reversed(range(start, end)))) for group, start, end in ends]  # the newest first: most people ask about it
    each = _room([len(indices) for _, indices in whole], MOST_CELLS // max(len(tallies), 1))
    shown = [(group, indices[:each]) for group, indices in whole]
    yield (
        addresses.FRONT,
        render(
            "index.html.j2",
            addresses.FRONT,
            view=view,
            headline=headline(view.groups, view.expectations),
            tallies=tallies,
            shown=shown,
            newest=newest,
            changed=[pair for pair in view.transitions if pair[1].version == newest],
            history=_history(view),
            causes=CAUSES,
            machines=[machine for group in view.groups for machine in machines(group)],
            absent=[device for device in DEVICES if not any(group.device == device and _ran(group) for group in view.groups)],
            holes=[(column, column.note or "nothing came back") for column in view.columns if not column.measured or column.note],
            unmeasured=_unmeasured(view),
            unsupported=sum(
                record["verdict"] == Verdict.UNSUPPORTED.value for row in view.rows.values() for record in row.records if record is not None
            ),
            problems=len(view.result.all_problems()) + len(view.result.conflicts),
        ),
    )
    yield addresses.OVERVIEW, render("overview.html.j2", addresses.OVERVIEW, view=view, shown=whole, tallies=tallies)


def _room(lengths: Sequence[int], most: int) -> int:
    """How many columns of each device there is room for, where `most` are shown in all; at least one."""
    fits = (each for each in range(max(lengths, default=1), 0, -1) if sum(min(each, length) for length in lengths) <= most)
    return next(fits, 1)


def tally(view: View, rows: Sequence[Row], index: int) -> Tally | None:
    """What a family came to in one column; None where the column was not measured, or has no case of it."""
    column = view.columns[index]
    records = [record for row in rows if (record := row.records[index]) is not None]
    if not column.measured or not records:
        return None
    verdicts = Counter(record["verdict"] for record in records)
    deviating = {verdict: verdicts[verdict.value] for verdict in Verdict if verdict.deviates and verdicts[verdict.value]}
    unexpected = sum(Verdict(record["verdict"]).deviates and view.entry(record) is None for record in records)
    worst = next(iter(deviating), Verdict.PASS if verdicts["pass"] else Verdict.UNSUPPORTED)
    files = sum(record["case"] in column.files for record in records) if column.files else 0
    absent = _absent(view, rows, index, len(records))
    return Tally(len(records), sum(deviating.values()), worst, verdicts[worst.value], unexpected, files, absent)


def _absent(view: View, rows: Sequence[Row], index: int, there: int) -> int:
    """How many cases of the device one column lacks; 0 where they are few: not every release has each operator."""
    ends = ((start, start + len(group.columns)) for group, start in zip(view.groups, view.starts))
    start, end = next(each for each in ends if index < each[1])
    lacking = sum(any(row.records[start:end]) for row in rows) - there
    return lacking if lacking > FEW_ABSENT * (lacking + there) else 0


def machines(group: Group) -> list[Machine]:
    """The machines behind the columns of one device."""
    found: dict[tuple[str, str], list[Column]] = {}
    for column in group.columns:
        if column.measured:
            fact = column.result.fact
            system = ", ".join(
                part for part in (fact("device", "name"), fact("cpu", "model"), fact("cpu", "capability"), fact("platform", "os")) if part
            )
            off = column.result.controls_off
            known = isinstance(column.result.environment.get("controls"), dict)
            controls = "off" if off else "as they must be" if known else "not recorded"
            found.setdefault((system, controls), []).append(column)
    made = []
    for (system, controls), columns in found.items():
        days = sorted(column.result.fact("started_at")[:10] for column in columns)
        made.append(Machine(group, len(columns), system, days[0], days[-1], controls))
    return made


def _ran(group: Group) -> bool:
    return any(column.measured for column in group.columns)


def _unmeasured(view: View) -> list[tuple[Group, list[Version]]]:
    """For each device on which anything ran, the releases that ran on others only."""
    found = []
    for group in view.groups:
        have = {column.version for column in group.columns if column.measured}
        if have and set(view.releases) - have:
            found.append((group, [release for release in view.releases if release not in have]))
    return found


def _history(view: View) -> list[tuple[Version, int, int, int]]:
    """For each release, the newest first, how many cases got worse and better there and how many were compared, over all devices."""
    worse: Counter[Version] = Counter()
    better: Counter[Version] = Counter()
    compared: Counter[Version] = Counter()
    for _, step in view.transitions:
        worse[step.version] += sum(len(cause.moves) for cause in step.difference.worse)
        better[step.version] += sum(len(cause.moves) for cause in step.difference.better)
        compared[step.version] += step.difference.compared
    return [(release, worse[release], better[release], compared[release]) for release in reversed(view.releases)]
