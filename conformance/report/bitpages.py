"""The page of equivalence classes: what was observed bit by bit, coloured by which releases and devices agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

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
    found = observations(view, series)
    groups = [group for group in view.groups if _has_digests(group)]
    changing = sum(each.changes for each in found)
    apart = sum(not each.changes and each.differs for each in found)
    width = sum(len(group.columns) for group in groups)
    values = {"view": view, "groups": groups, "total": len(found), "changing": changing, "apart": apart, "width": width}
    for part in paging.parts(found, lambda each: 1, BUDGET, partial(addresses.part, addresses.BITS), lambda each: each.case):
        yield part.address, render("bits.html.j2", part.address, part=part, **values)


def observations(view: View, series: Sequence[Series]) -> list[Observation]:
    """Every observation that has a digest somewhere, those that change between releases first, then by case."""
    told: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for each in series:
        told[each.case, each.name].append(each)
    names = {(row.case, name) for row in view.rows.values() for record in row.records if record for name in _with_digest(record)}
    found = [_observation(view, case, name, told.get((case, name), [])) for case, name in sorted(names)]
    return sorted(found, key=lambda each: not each.changes)


def _observation(view: View, case: str, name: str, series: list[Series]) -> Observation:
    labels: dict[str, str] = {}
    strips: list[Strip] = []
    for group, records in view.split(view.rows[case]):
        seen = [digest(record, name) if record else "" for record in records]
        if any(seen) or _has_digests(group):
            for index, (column, bits) in enumerate(zip(group.columns, seen)):
                label = labels.setdefault(bits, class_letter(len(labels))) if bits else ""
                if index and strips[-1].label == label:
                    strips[-1].columns.append(column)
                else:
                    strips.append(Strip(label, [column]))
    many = len({each.group for each in series}) > 1
    sentences = [_sentence(each, many) for each in series if each.changes or each.mixed]
    return Observation(case, name, strips, sentences, any(each.changes or each.mixed for each in series), len(labels) > 1)


def _sentence(each: Series, many: bool) -> str:
    return "; ".join([f"{each.group}: {each.sentence}" if many else each.sentence, *each.caveats])


def _has_digests(group: Group) -> bool:
    return any(_with_digest(record) for column in group.columns for record in column.outcomes.values())


def _with_digest(record: Record) -> list[str]:
    return [name for name in record["observations"] if digest(record, name)]
