"""What changes its bits: for each observation that has a digest, the releases that agree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version

from conformance.columns import Group
from conformance.compare import Change, Run, changes_between, classes
from conformance.differences import digest

#: Names that say no more of an observation than that it is what the case is about.
_PLAIN_NAMES = frozenset({"bits", "digest", "values", "value", "result"})


@dataclass(frozen=True)
class Series:
    """The digests of one observation over the releases of one group of columns."""

    case: str
    name: str
    group: str
    runs: list[Run]
    mixed: list[Version]
    capabilities: list[str]

    @property
    def what(self) -> str:
        """The observation in words, from the case's brackets: `float32 trunc_normal_`."""
        match = re.search(r"\[(.+)\]$", self.case)
        words = " ".join(match.group(1).split("-")) if match else self.case.partition(".")[2] or self.case
        return words if self.name in _PLAIN_NAMES else f"{words}, {self.name}"

    @property
    def changes(self) -> list[Change]:
        """Where the bits change, oldest first."""
        return changes_between(self.runs)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if not self.changes:
            return f"{self.what} is equal on every release measured: {self.runs[0]}"
        told = []
        for change in self.changes:
            verb = f"goes back to {change.after.label}" if change.returns else "changes its bits"
            span = change.before
            equal = f"different on {span.first}" if len(span.releases) == 1 else f"equal from {span.first} to {span.last}"
            told.append(f"{verb} at {change.at} ({equal})")
        return f"{self.what} {', and '.join(told)}"

    @property
    def caveats(self) -> list[str]:
        """What confounds the comparison."""
        told = [f"two cells of {version} differ" for version in self.mixed]
        if self.changes and len(self.capabilities) > 1:
            told.append(f"measured on different CPU capabilities: {', '.join(self.capabilities)}")
        return told


def series(groups: Sequence[Group]) -> list[Series]:
    """Every digest's series, by case, observation and group; those of one release only are left out."""
    found: list[Series] = []
    for group in groups:
        digests: dict[tuple[str, str], dict[Version, set[str]]] = defaultdict(lambda: defaultdict(set))
        capabilities: dict[tuple[str, str], set[str]] = defaultdict(set)
        for column in group.columns:
            for case, record in column.outcomes.items():
                for name in record["observations"]:
                    if seen := digest(record, name):
                        digests[case, name][column.version].add(seen)
                        capabilities[case, name].add(column.result.fact("cpu", "capability"))
        for key, by_release in digests.items():
            runs = classes({version: "+".join(sorted(seen)) for version, seen in by_release.items()})
            mixed = sorted(version for version, seen in by_release.items() if len(seen) > 1)
            if len(by_release) > 1 or mixed:
                found.append(Series(*key, group.label, runs, mixed, sorted(capabilities[key] - {""})))
    return sorted(found, key=lambda each: (not each.changes, each.case, each.name, each.group))
