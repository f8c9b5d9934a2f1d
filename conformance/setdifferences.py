"""Two result sets beside each other, column by column; or two columns of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.columns import Column
from conformance.differences import Cause, Difference, difference, outcomes_of
from conformance.errors import NothingSelectedError
from conformance.results import ResultSet

#: Version of the JSON that `as_json` gives.
SCHEMA = 1


@dataclass(frozen=True)
class Pair:
    """Two columns and what differs between them."""

    old: str
    new: str
    difference: Difference

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two."""
        return (self.old, self.new) if self.old != self.new else ("the old set", "the new set")

    def as_json(self) -> dict[str, Any]:
        """The pair as a table of JSON values."""
        found = self.difference
        return {
            "old": self.old,
            "new": self.new,
            "regressed": found.regressed,
            "compared": found.compared,
            "worse": [_cause(cause) for cause in found.worse],
            "better": [_cause(cause) for cause in found.better],
            "numbers": [
                {"case": move.case, "name": move.name, "old": move.old, "new": move.new, "better": move.better, "worse": move.worse}
                for move in found.numbers
            ],
            "bits": [{"case": move.case, "name": move.name} for move in found.bits],
            "appeared": found.appeared,
            "vanished": found.vanished,
            "unknown": found.unknown,
        }


@dataclass(frozen=True)
class Comparison:
    """All pairs of columns, and the columns that only one of the two sets has."""

    pairs: list[Pair] = field(default_factory=list)
    only_old: list[str] = field(default_factory=list)
    only_new: list[str] = field(default_factory=list)

    @property
    def regressed(self) -> bool:
        """Whether anything got worse anywhere."""
        return any(pair.difference.regressed for pair in self.pairs)

    @property
    def exit_code(self) -> int:
        """1 on a regression, else 0."""
        return 1 if self.regressed else 0

    def as_json(self) -> dict[str, Any]:
        """The comparison as a table of JSON values, documented in docs/files.md."""
        return {
            "schema": SCHEMA,
            "regressed": self.regressed,
            "pairs": [pair.as_json() for pair in self.pairs],
            "only_old": self.only_old,
            "only_new": self.only_new,
        }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "before": cause.before.value,
        "after": cause.after.value,
        "reason": cause.reason,
        "blame": cause.blame,
        "source": cause.source,
        "cases": cause.cases,
    }


def compare_sets(old: ResultSet, new: ResultSet) -> Comparison:
    """Each cell that both sets have; where each set has one cell alone, these two whatever they are.

    Raises NothingSelectedError when there is no such pair.
    """
    before, after = ({str(cell.cell): cell.outcomes() for cell in each.cells} for each in (old, new))
    cells = {str(cell.cell): cell.cell for each in (old, new) for cell in each.cells}
    names = [(name, name) for name in before if name in after]
    if not names and len(before) == len(after) == 1:
        names = [(next(iter(before)), next(iter(after)))]
    if not names:
        raise NothingSelectedError(
            f"the two result sets have no cell in common: {_listed(before)} on one side, {_listed(after)} on the other"
        )
    pairs = [
        Pair(first, second, difference(outcomes_of(cells[first], before[first]), outcomes_of(cells[second], after[second])))
        for first, second in names
    ]
    firsts, seconds = ({pair[side] for pair in names} for side in (0, 1))
    return Comparison(pairs, [name for name in before if name not in firsts], [name for name in after if name not in seconds])


def compare_columns(old: Column, new: Column) -> Comparison:
    """Two columns."""
    found = difference(outcomes_of(old.cell, old.outcomes), outcomes_of(new.cell, new.outcomes))
    return Comparison([Pair(str(old.cell), str(new.cell), found)])


def _listed(names: dict[str, Any]) -> str:
    shown = list(names)[:3]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more if shown else "none"


def lone(comparison: Comparison) -> Iterator[str]:
    """A line for each column that only one of the sets has."""
    yield from (f"{name}: only in the old set" for name in comparison.only_old)
    yield from (f"{name}: only in the new set" for name in comparison.only_new)
