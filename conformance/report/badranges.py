"""bad-ranges.json: for each case and device, the releases where it does not work, as specifiers that pip and packaging read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.version import Version

from conformance import __version__
from conformance.columns import Group
from conformance.compare import intervals, measured, ranges
from conformance.incell.verdicts import Verdict

SCHEMA = 1


def table(groups: Sequence[Group]) -> dict[str, Any]:
    """The file's content: an entry for each case and group of columns that deviates somewhere, by case. Cells that do not count are out."""
    entries = [entry for group in groups for entry in _of(group.sound)]
    return {"schema": SCHEMA, "tool": __version__, "ranges": sorted(entries, key=lambda each: each["case"])}


def _of(group: Group) -> Iterator[dict[str, Any]]:
    cases = {case for column in group.columns for case, record in column.outcomes.items() if Verdict(record["verdict"]).deviates}
    for case in sorted(cases):
        verdicts = group.verdicts(case)
        bad = _bad(verdicts)
        if bad:
            yield {
                "case": case,
                "device": group.device,
                "platform": group.platform,
                "tag": group.tag,
                "bad": {verdict: ranges(versions, verdicts) for verdict, versions in bad.items()},
                "passes": intervals(verdicts),
            }


def _bad(verdicts: Mapping[Version, Verdict | None]) -> dict[str, list[Version]]:
    """Verdict -> the releases where the case came to it, for verdicts that deviate and say something about torch."""
    found: dict[str, list[Version]] = {}
    for version in measured(verdicts):
        verdict = verdicts[version]
        if verdict is not None and verdict.deviates:
            found.setdefault(verdict.value, []).append(version)
    return dict(sorted(found.items()))
