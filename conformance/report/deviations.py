"""Deviations grouped by their reason: each kind of failure once, with the cases and releases that it strikes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from conformance.artifacts import Record
from conformance.columns import Group
from conformance.compare import spans
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.reasons import blamed, blamed_source, generic_reason, stated_reason


@dataclass
class Struck:
    """One case in one group of columns, and the releases where it deviates."""

    case: str
    group: str
    torch: str
    expectations: list[Expectation]
    open: bool


@dataclass
class Kind:
    """Deviations of one verdict whose reasons differ in numbers at most; `example` is the first of them."""

    verdict: Verdict
    example: Record
    count: int = 0
    unexpected: int = 0
    struck: list[Struck] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """Why, in the words of the first record."""
        return stated_reason(self.example)

    @property
    def blame(self) -> str:
        """Where, as file:line."""
        return blamed(self.example)

    @property
    def source(self) -> str:
        """The line of source that is blamed."""
        return blamed_source(self.example)


def kinds(groups: Sequence[Group], expectations: Sequence[Expectation]) -> list[Kind]:
    """All deviations by kind: the unexpected first, then by severity, then the most frequent."""
    found: dict[tuple[str, str], Kind] = {}
    for group in groups:
        strikes: dict[tuple[str, str, str], list[tuple[Version, Expectation | None]]] = defaultdict(list)
        for column in group.columns:
            for case, record in column.outcomes.items():
                if Verdict(record["verdict"]).deviates:
                    key = (record["verdict"], generic_reason(record))
                    kind = found.setdefault(key, Kind(Verdict(record["verdict"]), record))
                    entry = covering(record, expectations)
                    kind.count += 1
                    kind.unexpected += entry is None
                    strikes[key[0], key[1], case].append((column.version, entry))
        for (verdict, reason, case), struck in strikes.items():
            found[verdict, reason].struck.append(_struck(case, group, struck))
    return sorted(found.values(), key=lambda kind: (not kind.unexpected, kind.verdict.severity, -kind.count, kind.reason))


def _struck(case: str, group: Group, struck: Sequence[tuple[Version, Expectation | None]]) -> Struck:
    measured = [version for version, verdict in group.verdicts(case).items() if verdict is not None]
    torch = " and ".join(spans([version for version, _ in struck], measured)).replace(",", ", ")
    entries = dict.fromkeys(entry.number for _, entry in struck if entry is not None)
    by_number = {entry.number: entry for _, entry in struck if entry is not None}
    return Struck(case, group.label, torch, [by_number[number] for number in entries], any(entry is None for _, entry in struck))
