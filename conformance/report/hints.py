"""Hints: what a check that passes saw on its way, and that may be wrong for inputs that nobody tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from conformance.artifacts import Record
from conformance.compare import spans
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line

#: Observation of a passing check -> what it says, after the check's name.
_TELLING = {"frozen_lines": "right for every input that was tried; torch warns that it froze what these lines decided"}


def hints(cases: Sequence[str], outcomes: Mapping[Version, Mapping[str, Record]]) -> Iterator[tuple[str, str, list[str]]]:
    """Check, sentence with its releases, and the lines it is about; equal ones of several releases once."""
    for case in cases:
        for name, sentence in _TELLING.items():
            found: dict[str, list[Version]] = {}
            for version in sorted(outcomes):
                told = _told(outcomes[version].get(case), name)
                if told:
                    found.setdefault(told, []).append(version)
            for told, versions in found.items():
                where = ", ".join(spans(versions, outcomes))
                yield case, f"{sentence} (on {where})", [one_line(line, 160) for line in told.split("; ")]


def _told(record: Record | None, name: str) -> str:
    if record is None or record["verdict"] != Verdict.PASS.value:
        return ""
    value = str((record["observations"] or {}).get(name, {}).get("value", "none"))
    return "" if value == "none" else value
