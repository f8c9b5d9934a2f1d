"""Edits of an expectations file: entries written from results, and spent ones taken out. All other text stays as it is."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from packaging.version import Version

from conformance.artifacts import Record, write_bytes
from conformance.cells import Cell
from conformance.compare import spans
from conformance.coverage import covering
from conformance.errors import ConfigError
from conformance.expectations import Expectation, link_mistake, load, parse, read_text, reason_mistake
from conformance.incell.verdicts import Verdict
from conformance.results import ResultSet
from conformance.standings import Standing, standings

_HEADER = re.compile(r"""^\s*\[\[\s*["']?expectation["']?\s*\]\]\s*(#.*)?$""")


@dataclass(frozen=True)
class Draft:
    """A deviation that no entry covers: one case, verdict and device on neighbouring releases."""

    case: str
    verdict: str
    device: str
    torch: str

    def __str__(self) -> str:
        return f"{self.case} is {self.verdict} on torch {self.torch}, device {self.device}"


def drafts(records: Iterable[Record], expectations: Sequence[Expectation]) -> list[Draft]:
    """What `update` would write: uncovered deviations, joined over releases that are neighbours among those measured.

    A `missing` record is left out: what never came is no fact about torch.
    """
    measured: dict[tuple[str, str], set[Version]] = defaultdict(set)
    open_: dict[tuple[str, str, str], set[Version]] = defaultdict(set)
    for record in records:
        cell, verdict = Cell.parse(record["cell"]), Verdict(record["verdict"])
        if verdict is Verdict.MISSING:
            continue
        measured[record["case"], cell.device].add(cell.version)
        if verdict.deviates and covering(record, expectations) is None:
            open_[record["case"], cell.device, verdict.value].add(cell.version)
    return [
        Draft(case, verdict, device, torch)
        for (case, device, verdict), releases in sorted(open_.items())
        for torch in spans(releases, measured[case, device])
    ]


def update(path: Path, records: Iterable[Record], reason: str | None, link: str | None, review: date | None) -> list[Draft]:
    """Appends an entry to the file for each uncovered deviation in `records`, and returns them; makes the file if need be.

    Raises ConfigError, before it writes, when there is something to write and the reason, link or review date is not good.
    """
    text = read_text(path) if path.exists() else ""
    found = drafts(records, parse(text, str(path)))
    if not found:
        return []
    _check(found, reason, link, review)
    entries = [_entry(draft, str(reason), str(link), review) for draft in found]
    head = text if not text or text.endswith("\n") else text + "\n"
    written = head + ("\n" if head else "") + "\n".join(entries)
    parse(written, str(path))
    write_bytes(path, written.encode("utf-8"))
    return found


def _check(found: Sequence[Draft], reason: str | None, link: str | None, review: date | None) -> None:
    """Refuses to write an entry whose reason, link or date nobody gave."""
    asked = []
    if reason is None or reason_mistake(reason):
        asked.append("--reason: why torch behaves so, in a sentence (it is never invented)")
    if link is None or link_mistake(link):
        asked.append("--link: the https:// address of the issue")
    if review is None:
        asked.append("--review: the day to look at it again, as 2027-03-01")
    if asked:
        listed = [f"  {draft}" for draft in found[:10]] + ([f"  and {len(found) - 10} more"] if len(found) > 10 else [])
        raise ConfigError(
            "\n".join([f"{len(found)} expectations would be written:", *listed, "give with them:", *(f"  {one}" for one in asked)])
        )


def _entry(draft: Draft, reason: str, link: str, review: date | None) -> str:
    rows = {
        "case": draft.case,
        "torch": draft.torch,
        "device": draft.device,
        "verdict": draft.verdict,
        "reason": reason.strip(),
        "link": link,
    }
    texts = [f"{key} = {_quoted(value)}" for key, value in rows.items()]
    return "\n".join(["[[expectation]]", *texts, f"review = {review}"]) + "\n"


def _quoted(text: str) -> str:
    """`text` as a TOML basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def prune(path: Path, result: ResultSet) -> list[Expectation]:
    """Takes the spent entries out of the file, those that match nothing or whose case passes wherever measured, and returns them.

    Comments and all other lines stay. Raises ConfigError, and leaves the file alone, when the entries cannot be told apart in it.
    """
    entries = load(path)
    spent = [each.entry for each in standings(result, entries) if each.spent]
    if not spent:
        return []
    text = read_text(path)
    gone = {entry.number for entry in spent}
    pruned = _without(text, gone, len(entries), path)
    left = [entry for entry in entries if entry.number not in gone]
    if [content(entry) for entry in parse(pruned, str(path))] != [content(entry) for entry in left]:
        raise ConfigError(f"{path} is laid out in a way that prune does not follow: take out entries {sorted(gone)} by hand")
    write_bytes(path, pruned.encode("utf-8"))
    return spent


def content(entry: Expectation) -> tuple[object, ...]:
    """What an entry says, whatever its place in the file."""
    return tuple(value for name, value in vars(entry).items() if name != "number")


def entry_lines(text: str, count: int, path: Path, wanted: Iterable[int]) -> tuple[list[str], list[int]]:
    """The lines of the file and the numbers of those that begin an entry; raises ConfigError where these are not `count` lines.

    `wanted` are the entries that were to be edited, for its message.
    """
    lines = text.split("\n")
    heads = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    if len(heads) != count:
        raise ConfigError(
            f"{path} does not write each entry under a line [[expectation]] of its own: edit entries {sorted(wanted)} by hand"
        )
    return lines, heads


def _without(text: str, gone: set[int], count: int, path: Path) -> str:
    """`text` without the lines of the entries numbered in `gone`: from each header to its last key, and one blank line after."""
    lines, heads = entry_lines(text, count, path, gone)
    dropped: set[int] = set()
    for number, (head, after) in enumerate(zip(heads, [*heads[1:], len(lines)], strict=True), 1):
        if number in gone:
            own = [line for line in range(head, after) if lines[line].strip() and not lines[line].lstrip().startswith("#")]
            dropped.update(range(head, own[-1] + 1))
            if own[-1] + 1 < len(lines) - 1 and not lines[own[-1] + 1].strip():
                dropped.add(own[-1] + 1)
    return "\n".join(line for number, line in enumerate(lines) if number not in dropped)


def explain(expectations: Sequence[Expectation], result: ResultSet, today: date) -> list[str]:
    """For each entry, lines for a terminal: what it says, its reason and link, and how it stands."""
    lines: list[str] = []
    for each in standings(result, expectations):
        entry = each.entry
        lines += [
            str(entry),
            f"    {entry.reason} ({entry.link}, review {entry.review})",
            *(f"    {told}" for told in _stands(each, today)),
        ]
    return lines or ["no expectations"]


def _stands(each: Standing, today: date) -> list[str]:
    told = []
    if each.covered:
        cells = sorted({record["cell"] for record in each.covered})
        told.append(f"covers {len(each.covered)} records in {len(cells)} cells: {', '.join(map(str, each.holds))}")
    if each.passes:
        told.append(f"passes now on {', '.join(map(str, each.passes))}")
    if each.tighter is not None:
        told.append(f"could be bound by {each.tighter:g}")
    if not told:
        told.append("matches nothing" if each.unmatched else "nothing was measured that it speaks of")
    if each.overdue(today):
        told.append(f"past its review date {each.entry.review}")
    return told
