"""What a table of verdicts is made of: the sign and the meaning of each verdict, the order of families, and their counts in a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from conformance.columns import Column, Group
from conformance.incell.identity import FAMILIES
from conformance.incell.verdicts import Verdict

#: A sign for each verdict, so that shape tells it where colour does not.
SIGNS = {
    Verdict.WRONG: "✕",
    Verdict.CRASH: "▲",
    Verdict.RAISES: "!",
    Verdict.TIMEOUT: "◷",
    Verdict.UNEXERCISED: "○",
    Verdict.ERROR: "◆",
    Verdict.MISSING: "?",
    Verdict.PASS: "✓",
    Verdict.UNSUPPORTED: "\N{EN DASH}",
}
#: What each verdict says, for the legend.
MEANINGS = {
    Verdict.WRONG: "ran and gave a different answer, in silence",
    Verdict.CRASH: "the process died",
    Verdict.RAISES: "torch raised where it should work",
    Verdict.TIMEOUT: "did not end in time",
    Verdict.UNEXERCISED: "green, but nothing ran on the device",
    Verdict.ERROR: "the harness or the environment failed: says nothing about torch",
    Verdict.MISSING: "planned, and no record came",
    Verdict.PASS: "as it should be",
    Verdict.UNSUPPORTED: "the API or device is not there",
}


def families(groups: Sequence[Group]) -> list[str]:
    """The families that have a record: the project's own in their order, then others by name."""
    found = {record["family"] for group in groups for column in group.columns for record in column.outcomes.values()}
    return [name for name in FAMILIES if name in found] + sorted(found - set(FAMILIES))


def counts(column: Column, family: str) -> Counter[Verdict]:
    """How many cases of a family came to each verdict in one column."""
    return Counter(Verdict(record["verdict"]) for record in column.outcomes.values() if record["family"] == family)
