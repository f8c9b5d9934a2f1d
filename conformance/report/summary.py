"""The summary for a CI job, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from conformance import __version__
from conformance.answers import difference as answer
from conformance.columns import Group, groups
from conformance.expectations import Expectation
from conformance.gate import Judgement
from conformance.incell.records import SCHEMA
from conformance.incell.verdicts import Verdict
from conformance.markdown import address, code, escaped, named
from conformance.plaintext import one_line
from conformance.report import bits, deviations, grid
from conformance.report.headline import headline
from conformance.results import ResultSet
from conformance.transitions import transitions

#: A job summary may have 1 MiB; what does not fit is counted.
LISTED = 50
_CELL_CHARACTERS = 300


def summary(result: ResultSet, expectations: Sequence[Expectation], judgement: Judgement) -> str:
    """The results as Markdown of at most a few hundred KiB: the answer, counts per cell, changed bits, and the first deviations."""
    columns = groups(result)
    figures = headline(columns, expectations)
    lines = ["# PyTorch conformance", "", escaped(figures.answer), "", escaped(figures.measured), "", *_counts(columns)]
    lines += _newest(columns)
    changed = [each for each in bits.series(columns) if each.changes]
    if changed:
        lines += ["", "## What changes its bits", "", *_limited([f"- {escaped(each.sentence)}" for each in changed])]
    found = deviations.kinds(columns, expectations)
    if found:
        rows = [row for kind in found for row in _rows(kind)]
        lines += ["", "## Deviations", "", "| verdict | case | where | expected | reason |", "|---|---|---|---|---|", *rows[:LISTED]]
        lines += [f"\nand {len(rows) - LISTED} more: see the report." if len(rows) > LISTED else ""]
    lines += ["", "## Gate", "", *_limited([f"- {escaped(str(finding))}" for finding in judgement.findings])]
    lines += ["", escaped(judgement.lines(0)[-1]), "", f"torch-conformance {__version__}, schema {SCHEMA}", ""]
    return "\n".join(lines)


def _newest(columns: Sequence[Group]) -> list[str]:
    """What changed in the newest release of each group, in a sentence, and all that got worse there, or since an older release."""
    told = []
    for group in columns:
        for newest in transitions(group.sound)[-1:]:
            place = f"torch {newest.version} on {group.label}, against {newest.previous}"
            told.append(f"- {escaped(place)}: {escaped(answer.headline(newest.difference, newest.earlier))}")
            worse = [cause for cause in newest.earlier if cause.moves[0].worse]
            for cause in (*newest.difference.worse, *worse):
                cases = named(cause.cases, LISTED)
                told.append(f"  - {cause.before} → {cause.after}: {cases}: {escaped(one_line(cause.reason, _CELL_CHARACTERS))}")
    return ["", "## What changed in the newest release", "", *_limited(told)] if told else []


def _counts(columns: Sequence[Group]) -> list[str]:
    """One row per cell; a column for each verdict that occurs."""
    cells = [column for group in columns for column in group.columns]
    occurring = [
        verdict for verdict in Verdict if any(record["verdict"] == verdict.value for column in cells for record in column.outcomes.values())
    ]
    lines = [f"| cell | {' | '.join(f'{grid.SIGNS[verdict]} {verdict}' for verdict in occurring)} |", f"|---|{'--:|' * len(occurring)}"]
    for column in cells:
        if not column.measured:
            lines.append(f"| {code(str(column.cell))} | {'not measured |' + ' |' * (len(occurring) - 1)}")
            continue
        verdicts = [record["verdict"] for record in column.outcomes.values()]
        note = f" ({escaped(column.note)})" if column.note else ""
        lines.append(f"| {code(str(column.cell))}{note} | {' | '.join(str(verdicts.count(verdict.value)) for verdict in occurring)} |")
    return lines if occurring else ["Nothing was measured."]


def _rows(kind: deviations.Kind) -> list[str]:
    sign = f"{grid.SIGNS[kind.verdict]} {kind.verdict}"
    known = f"[{escaped(one_line(kind.entry.reason, 120))}]({address(kind.entry.link)})" if kind.entry else "no"
    found = []
    for struck in kind.struck:
        reason = escaped(one_line(struck.reason, _CELL_CHARACTERS))
        found.append(f"| {sign} | {code(struck.case)} | {escaped(f'{struck.group}, torch {struck.torch}')} | {known} | {reason} |")
    return found


def _limited(lines: list[str]) -> list[str]:
    return lines[:LISTED] + ([f"- and {len(lines) - LISTED} more"] if len(lines) > LISTED else [])
