"""`skipif` marks for a project's own tests, from results: a module of tables that needs pytest alone."""

from __future__ import annotations

import pprint
from collections import defaultdict
from pathlib import Path

from packaging.version import Version

from conformance import __version__
from conformance.compare import UNKNOWN, ranges
from conformance.incell.verdicts import Verdict
from conformance.results import ResultSet
from conformance.support import NO_RANGE, Table, bounds

_TEMPLATE = Path(__file__).parent / "templates" / "measured.py"
#: The lines of the template that a written module has filled.
_TOOL, _SUPPORTED, _BROKEN = (
    'TOOL = 1, ""',
    "SUPPORTED: dict[str, str] = {}",
    "BROKEN: dict[str, dict[str, tuple[str, ...]]] = {}",
)


def module(found: Table, result: ResultSet) -> str:
    """The source of the module: equal results give equal text."""
    by_device = {device: bounds(found, [device]) for device in sorted(found)}
    supported = {device: bound for device, bound in by_device.items() if bound not in NO_RANGE}
    text = _TEMPLATE.read_text(encoding="utf-8").replace(_TOOL, f'TOOL = 1, "{__version__}"')
    for line, filled in ((_SUPPORTED, supported), (_BROKEN, broken(result))):
        text = text.replace(line, line.removesuffix("{}") + pprint.pformat(filled, width=120))
    return text


def broken(result: ResultSet) -> dict[str, dict[str, tuple[str, ...]]]:
    """Device -> case -> the stretches of releases where it deviates, known or not; what says nothing about torch is left out."""
    bad: dict[tuple[str, str], set[Version]] = defaultdict(set)
    ran: dict[tuple[str, str], set[Version]] = defaultdict(set)
    for cell in result.judged():
        for case, record in cell.outcomes().items():
            verdict = Verdict(record["verdict"])
            if verdict in UNKNOWN:
                continue
            ran[cell.cell.device, case].add(cell.cell.version)
            if verdict.deviates:
                bad[cell.cell.device, case].add(cell.cell.version)
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for (device, case), versions in sorted(bad.items()):
        found.setdefault(device, {})[case] = tuple(ranges(versions, ran[device, case]))
    return found
