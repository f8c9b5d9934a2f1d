"""Entries made to say no more than what was measured: releases where the case passes now are left out, bounds move to the number seen."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packaging.specifiers import SpecifierSet

from conformance.artifacts import write_bytes
from conformance.errors import ConfigError
from conformance.expectation_edits import content, entry_lines
from conformance.expectations import Expectation, load, parse, read_text
from conformance.results import ResultSet
from conformance.selectors import matches
from conformance.standings import Standing, standings

_TORCH = re.compile(r"""^(\s*torch\s*=\s*)("[^"]*"|'[^']*')""")
_CASE = re.compile(r"^\s*case\s*=")
_BOUND = re.compile(r"(\bbound\s*=\s*)[-+0-9._eE]+")


def tighten(path: Path, result: ResultSet, cases: Sequence[str] = ()) -> list[str]:
    """Tightens the entries of a file, those of `cases` (ids or globs, as the entries write them) or all; returns a line for each.

    All other text stays. Raises ConfigError, and leaves the file alone, when it is laid out in a way that this does not follow.
    """
    entries = load(path)
    chosen = [
        each
        for each in standings(result, entries)
        if (not cases or any(matches(case, each.entry.case) for case in cases)) and (_narrows(each) or each.tighter is not None)
    ]
    if not chosen:
        return []
    wanted = {each.entry.number: _meant(each) for each in chosen}
    lines, heads = entry_lines(read_text(path), len(entries), path, wanted)
    ends = [*heads[1:], len(lines)]
    for each in reversed(chosen):
        number = each.entry.number - 1
        lines[heads[number] : ends[number]] = _tightened(lines[heads[number] : ends[number]], each)
    text = "\n".join(lines)
    if not _says(text, [wanted.get(entry.number, entry) for entry in entries]):
        raise ConfigError(f"{path} is laid out in a way that tighten does not follow: edit entries {sorted(wanted)} by hand")
    write_bytes(path, text.encode("utf-8"))
    return [f"entry {number}: {entry.case}: {_told(entry, entries[number - 1])}" for number, entry in wanted.items()]


def _says(text: str, entries: Sequence[Expectation]) -> bool:
    """Whether the text of a file holds these entries and no others."""
    try:
        return [content(entry) for entry in parse(text, "")] == [content(entry) for entry in entries]
    except ConfigError:
        return False


def _narrows(each: Standing) -> bool:
    return bool(each.passes and each.holds)


def _meant(each: Standing) -> Expectation:
    """The entry as it must read afterwards."""
    entry = each.entry
    if _narrows(each):
        entry = replace(entry, torch=SpecifierSet(each.narrowed()))
    if each.tighter is not None and entry.observation is not None:
        entry = replace(entry, observation=replace(entry.observation, bound=each.tighter))
    return entry


def _tightened(lines: list[str], each: Standing) -> list[str]:
    made = list(lines)
    if _narrows(each):
        told = json.dumps(each.narrowed())
        found = [number for number, line in enumerate(made) if _TORCH.match(line)]
        if found:
            made[found[0]] = _TORCH.sub(lambda match: match[1] + told, made[found[0]])
        else:
            case = next((number for number, line in enumerate(made) if _CASE.match(line)), 0)
            made.insert(case + 1, f"torch = {told}")
    if each.tighter is not None:
        made = [_BOUND.sub(lambda match: f"{match[1]}{each.tighter:g}", line) for line in made]
    return made


def _told(entry: Expectation, before: Expectation) -> str:
    told = [f'torch = "{entry.torch}"'] if entry.torch != before.torch else []
    if entry.observation is not None and entry.observation != before.observation:
        told.append(f"bound = {entry.observation.bound:g}")
    return ", ".join(told)
