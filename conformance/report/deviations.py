"""Deviations grouped by fault: each place that fails in one way once, with the cases and releases that it strikes."""

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
from conformance.reasons import blamed, blamed_source, generic_reason, reason_of, stated_reason

#: Verdict, reason without its numbers, place, and the number of the expectation, 0 for none.
_Fault = tuple[str, str, str, int]


@dataclass
class Struck:
    """One case in one group of columns, the releases where it deviates, and why in its own words."""

    case: str
    group: str
    torch: str
    reason: str


@dataclass
class Kind:
    """Deviations of one verdict at one place whose reasons differ in numbers at most, and that one expectation covers or none does.

    `example` is the first of them, `entry` the expectation.
    """

    verdict: Verdict
    example: Record
    entry: Expectation | None = None
    count: int = 0
    unexpected: int = 0
    struck: list[Struck] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """Why, in the words of the first record."""
        return stated_reason(self.example)

    @property
    def function(self) -> str:
        """The one case function that it strikes; empty where it strikes several."""
        names = {each.case.partition("[")[0] for each in self.struck}
        return names.pop() if len(names) == 1 else ""

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
    found: dict[_Fault, Kind] = {}
    for group in groups:
        strikes: dict[tuple[_Fault, str], list[tuple[Version, Record]]] = defaultdict(list)
        for column in group.columns:
            for case, record in column.outcomes.items():
                if Verdict(record["verdict"]).deviates:
                    entry = covering(record, expectations)
                    key = (*_fault(record), entry.number if entry else 0)
                    kind = found.setdefault(key, Kind(Verdict(record["verdict"]), record, entry))
                    kind.count += 1
                    kind.unexpected += entry is None
                    strikes[key, case].append((column.version, record))
        for (key, case), struck in strikes.items():
            found[key].struck.append(_struck(case, group, struck))
    return sorted(found.values(), key=lambda kind: (not kind.unexpected, kind.verdict.severity, -kind.count, kind.reason))


def _fault(record: Record) -> tuple[str, str, str]:
    """What deviations of one fault share: verdict, place, and reason but for its numbers.

    A place is a line by its text, since its number moves with the file. What raises there is one fault whoever comes there; a wrong answer
    is a matter of its case function, and so is what blames no line. What is not exercised names the operators in its reason.
    """
    verdict, blame, function = record["verdict"], record["blame"], record["case"].partition("[")[0]
    if verdict == Verdict.UNEXERCISED.value and not blame:
        return verdict, reason_of(record), ""
    line = f"{blame['file']}\0{blame['source'] or blame['line']}" if blame else ""
    own = verdict == Verdict.WRONG.value or not blame
    return verdict, generic_reason(record), f"{line}\0{function}" if own else line


def _struck(case: str, group: Group, struck: Sequence[tuple[Version, Record]]) -> Struck:
    torch = " and ".join(spans([version for version, _ in struck], group.verdicts(case))).replace(",", ", ")
    return Struck(case, group.label, torch, stated_reason(struck[-1][1]))
