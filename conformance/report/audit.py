"""An audit as text, and as data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.mps.audits import Audit, Row, ranges
from conformance.plaintext import one_line

_SIGNS = {"yes": "·", "composite": "·", "cpu-fallback": "c", "no": "✕", "dtype-no": "d", "os-too-old": "o", "unknown": "?"}
_LEGEND = (
    "· has a kernel or decomposes   c always runs on the CPU   ✕ no kernel   d dtype   o macOS too old   ? not known   blank: not reached"
)


def lines(audit: Audit, project: Path, *, everything: bool = False) -> list[str]:
    """The audit for a terminal: what was recorded, each release in a line, operators that are not plainly there, hazards."""
    return [*_head(audit), "", *_releases(audit), *_table(audit, project, everything=everything), *_hazards(audit, project)]


def _head(audit: Audit) -> Iterator[str]:
    builds = sorted(set(audit.recorded.values()))
    ops = len(audit.rows)
    yield f"{audit.subject} on {audit.device}: {ops} operators recorded with torch {', '.join(builds)}, looked up for {_all(audit)}"
    if audit.device == "mps":
        yield "registered: what each release has a kernel for, and faults by their reports. Nothing here ran on MPS."
    else:
        yield f"registered: what the dispatcher of the build that recorded has for {audit.device}."
    for reason in dict.fromkeys(audit.on_cpu.values()):
        yield f"recorded on the CPU, since on meta: {one_line(reason, 160)}"
    apart = [release for release, build in audit.recorded.items() if build.partition("+")[0] != release]
    if apart:
        yield "operators differ between releases: --each records each release in its own environment"


def _all(audit: Audit) -> str:
    return audit.releases[0] if len(audit.releases) == 1 else f"{len(audit.releases)} releases, {audit.releases[0]} .. {audit.releases[-1]}"


def _releases(audit: Audit) -> Iterator[str]:
    for release in audit.releases:
        stopping = [row.op for row in audit.stopping(release)]
        told = [audit.refused[release]] if release in audit.refused else []
        told += [f"stops at {len(stopping)}: {', '.join(stopping[:4])}{' …' if len(stopping) > 4 else ''}"] if stopping else []
        told += [f"silent: {danger.hazard.text}" for danger in audit.silent(release)]
        fallen = [row.op for row in audit.rows.values() if release in row.answers and row.answers[release].word == "cpu-fallback"]
        told += [f"on the CPU: {', '.join(fallen)}"] if fallen else []
        unknown = sum(row.answers[release].word == "unknown" for row in audit.rows.values() if release in row.answers)
        told += [f"{unknown} operators that it has not" if unknown else ""]
        yield f"  {release:<8} {'; '.join(each for each in told if each) or 'nothing is missing'}"


def _table(audit: Audit, project: Path, *, everything: bool) -> Iterator[str]:
    rows = [row for row in audit.rows.values() if everything or row.worst not in ("yes", "composite")]
    if not rows:
        return
    width = max(len(row.op) for row in rows)
    yield ""
    yield f"  {'operator':<{width}}  {' '.join(f'{_minor(release):>4}' for release in audit.releases)}"
    for row in rows:
        cells = (row.answers.get(release) for release in audit.releases)
        yield f"  {row.op:<{width}}  {' '.join(f'{_SIGNS[cell.word] if cell else chr(32):>4}' for cell in cells)}"
        yield f"      {', '.join(row.phases)}: {_place(row.site, project)}: {row.source}".rstrip(": ")
        yield from (f"      {told}" for told in _reasons(row, audit))
    yield f"  {_LEGEND}"


def _reasons(row: Row, audit: Audit) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for release, answer in row.answers.items():
        if answer.word not in ("yes", "composite"):
            by_reason.setdefault(str(answer), []).append(release)
    for reason, releases in by_reason.items():
        yield f"{reason}: {ranges(releases, audit.releases)}"


def _hazards(audit: Audit, project: Path) -> Iterator[str]:
    untold = [danger for danger in audit.dangers if not danger.hazard.stops]
    if untold:
        yield ""
        yield "  known faults that these calls may meet"
    for danger in untold:
        yield f"  {danger.op + ' ' if danger.op else ''}{danger.hazard}: {ranges(danger.releases, audit.releases)}"
        detail = f" ({danger.detail})" if danger.detail else ""
        yield f"      {_place(danger.site, project)}{detail}"


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _place(site: str, project: Path) -> str:
    return site.removeprefix(f"{project}/") or "no call of the user's own"


def as_json(audit: Audit) -> dict[str, Any]:
    """The audit as data: every cell with its word, detail and source."""
    return {
        "schema": 1,
        "subject": audit.subject,
        "device": audit.device,
        "recorded": audit.recorded,
        "on_cpu": audit.on_cpu,
        "refused": audit.refused,
        "rows": [
            {**vars(row), "answers": {release: vars(answer) for release, answer in row.answers.items()}} for row in audit.rows.values()
        ],
        "hazards": [
            {"op": danger.op, "effect": danger.hazard.effect, "text": danger.hazard.text, "source": danger.hazard.source}
            | {"when": danger.hazard.when, "detail": danger.detail, "site": danger.site, "releases": danger.releases}
            for danger in audit.dangers
        ],
        "stops": {release: [row.op for row in audit.stopping(release)] for release in audit.releases},
    }
