"""The headline: what was measured, when, and what deviates, each in a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from conformance.columns import Group
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.plaintext import counted

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True)
class Headline:
    """The figures of a result set. `verdicts` counts case x cell; `unexpected` those that deviate and have no expectation."""

    releases: list[str]
    devices: list[str]
    cells: int
    unmeasured: int
    cases: int
    verdicts: dict[Verdict, int]
    unexpected: int
    since: str
    until: str

    @property
    def deviations(self) -> int:
        """How many results deviate, expected or not."""
        return sum(count for verdict, count in self.verdicts.items() if verdict.deviates)

    @property
    def results(self) -> int:
        """How many results there are."""
        return sum(self.verdicts.values())

    @property
    def measured(self) -> str:
        """What was measured and when."""
        if not self.releases:
            return "Nothing was measured."
        span = f"torch {self.releases[0]}" if len(self.releases) == 1 else f"{len(self.releases)} torch releases"
        ends = "" if len(self.releases) == 1 else f" ({self.releases[0]} to {self.releases[-1]})"
        when = (
            ""
            if not self.since
            else f" on {_day(self.since)}"
            if self.since == self.until
            else f" from {_day(self.since)} to {_day(self.until)}"
        )
        lost = f"; {counted(self.unmeasured, 'planned cell')} not measured" if self.unmeasured else ""
        return f"Measured {counted(self.cases, 'case')} on {span}{ends}, {', '.join(self.devices)}{when}{lost}."

    @property
    def answer(self) -> str:
        """What deviates."""
        if not self.results:
            return "There is no result to speak of."
        if not self.deviations:
            return f"None of {counted(self.results, 'result')} deviates."
        listed = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items() if verdict.deviates)
        expected = self.deviations - self.unexpected
        known = (
            "none of them expected" if not expected else "all of them expected" if not self.unexpected else f"{expected} of them expected"
        )
        verb = "deviates" if self.deviations == 1 else "deviate"
        return f"{self.deviations:,} of {counted(self.results, 'result')} {verb} ({listed}), {known}."


def headline(groups: Sequence[Group], expectations: Sequence[Expectation]) -> Headline:
    """The figures of `groups`."""
    columns = [column for group in groups for column in group.columns]
    measured = [column for column in columns if column.measured]
    records = [record for column in columns for record in column.outcomes.values()]
    counts = Counter(Verdict(record["verdict"]) for record in records)
    deviating = (record for record in records if Verdict(record["verdict"]).deviates)
    days = sorted(str(record["started_at"])[:10] for record in records if re.match(r"\d{4}-\d\d-\d\d", str(record["started_at"])))
    return Headline(
        releases=[str(version) for version in sorted({column.cell.version for column in measured})],
        devices=list(dict.fromkeys(column.cell.device for column in measured)),
        cells=len(measured),
        unmeasured=len(columns) - len(measured),
        cases=len({case for column in measured for case in column.outcomes if case not in column.files}),
        verdicts={verdict: counts[verdict] for verdict in Verdict if counts[verdict]},
        unexpected=sum(covering(record, expectations) is None for record in deviating),
        since=days[0] if days else "",
        until=days[-1] if days else "",
    )


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return text
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"
