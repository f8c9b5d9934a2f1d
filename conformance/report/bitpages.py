"""The page of equivalence classes: what was observed bit by bit, coloured by which releases and devices agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

from conformance.artifacts import Record
from conformance.columns import Column, Group
from conformance.compare import class_letter
from conformance.differences import digest
from conformance.report import addresses, paging
from conformance.report.bits import Series
from conformance.report.rendering import render
from conformance.report.view import View

#: Series of one page.
BUDGET = 400
#: Classes that have a colour of their own; later ones share one, and the letter tells them apart.
COLOURED = "ABCDEF"


@dataclass(frozen=True)
class Strip:
    """Columns side by side with equal bits; an empty label where nothing was observed."""

    label: str
    columns: list[Column]

    @property
    def colour(self) -> str:
        """The class of its colour."""
        return f"class-{self.label}" if self.label in COLOURED and self.label else "class-more" if self.label else "none"


@dataclass(frozen=True)
class Observation:
    """One observation of one case: a letter for each digest, the same over all groups, and in words what changes in each group.

    `changes` says whether the bits change between releases of one group, `differs` whether they differ at all.
    """

    case: str
    name: str
    strips: list[Strip]
    sentences: list[str]
    changes: bool
    differs: bool


def bit_pages(view: View, series: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Address and HTML of each part: what changes first."""
    groups = [group for group in view.groups if _has_digests(group)]
    found = observations(view, groups, series)
    changing = sum(each.changes for each in found)
    apart = sum(not each.changes and each.differs for each in found)
    width = sum(len(group.columns) for group in groups)
    values = {"view": view, "groups": groups, "total": len(found), "changing": changing, "apart": apart, "width": width}
    for part in paging.parts(found, lambda each: 1, BUDGET, partial(addresses.part, addresses.BITS), lambda each: each.case):
        yield part.address, render("bits.html.j2", part.address, part=part, **values)


def observations(view: View, groups: list[Group], series: Sequence[Series]) -> list[Observation]:
    """Every observation that has a digest in one of `groups`, those that change between releases first, then by case."""
    told: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for each in series:
        told[each.case, each.name].append(each)
    names = {(row.case, name) for row in view.rows.values() for record in row.records if record for name in _with_digest(record)}
    found = [_observation(view, groups, case, name, told.get((case, name), [])) for case, name in sorted(names)]
    return sorted(found, key=lambda each: not each.changes)


def _observation(view: View, groups: list[Group], case: str, name: str, series: list[Series]) -> Observation:
    labels: dict[str, str] = {}
    strips: list[Strip] = []
    for group, records in view.split(view.rows[case]):
        if any(group is each for each in groups):
            seen = [digest(record, name) if record else "" for record in records]
            letters = [labels.setdefault(bits, class_letter(len(labels))) if bits else "" for bits in seen]
            newest_first = zip(reversed(letters), reversed(group.columns))
            strips.extend(Strip(label, [column for _, column in same]) for label, same in groupby(newest_first, key=itemgetter(0)))
    many = len({each.group for each in series}) > 1
    sentences = [_sentence(each, many) for each in series if each.changes or each.mixed]
    return Observation(case, name, strips, sentences, any(each.changes or each.mixed for each in series), len(labels) > 1)


def _sentence(each: Series, many: bool) -> str:
    return "; ".join([f"{each.group}: {each.sentence}" if many else each.sentence, *each.caveats])


def _has_digests(group: Group) -> bool:
    return any(_with_digest(record) for column in group.columns for record in column.outcomes.values())


def _with_digest(record: Record) -> list[str]:
    return [name for name in record["observations"] if digest(record, name)]
