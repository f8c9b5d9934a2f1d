"""The index of the search: words by their first letters, and what they lead to in blocks, so that a page loads only what it needs.

Files are scripts, not JSON: a page that was opened from the file system may load those. `prefixes` says which of them there are.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from conformance.guardneeds import minor
from conformance.plaintext import one_line
from conformance.reasons import reason_of
from conformance.report import addresses
from conformance.report.oppage import OpLine
from conformance.report.rendering import render
from conformance.report.timeline import passing
from conformance.report.view import Row, View

#: Entries of one block.
BLOCK = 250
#: A release is one word, so that 2.9 finds it.
_WORD = re.compile(r"\d+(?:\.\d+)+|[a-z0-9]+")
_LONGEST_WORD = 24
#: Characters of each distinct reason that can be searched for.
_REASON = 300


@dataclass(frozen=True)
class Entry:
    """What a search finds: its kind, name, a line about it, where it lies, the words that lead to it, and the answer in short."""

    kind: str
    name: str
    about: str
    address: str
    words: frozenset[str]
    answer: str = ""


def files(view: View, operators: Sequence[OpLine] = ()) -> Iterator[tuple[str, str]]:
    """Address and text of the search page and of every file of the index."""
    found = list(entries(view, operators))
    yield addresses.SEARCH, render("search.html.j2", addresses.SEARCH, view=view)
    for start in range(0, len(found), BLOCK):
        rows = [[each.kind, each.name, each.about, each.address, each.answer] for each in found[start : start + BLOCK]]
        yield f"search/entries-{start // BLOCK}.js", _script("entries", start // BLOCK, rows)
    shards: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, each in enumerate(found):
        for word in sorted(each.words):
            shards[word[:2]][word].append(number)
    yield "search/prefixes-all.js", _script("prefixes", "all", sorted(shards))
    for prefix, listed in sorted(shards.items()):
        yield f"search/words-{prefix}.js", _script("words", prefix, listed)


def entries(view: View, operators: Sequence[OpLine] = ()) -> Iterator[Entry]:
    """What can be found: pages first, then cases in their order."""
    for name, rows in view.families.items():
        yield _entry("family", name, f"{len(rows):,} cases", addresses.family(name))
    for release in reversed(view.releases):
        yield _entry(
            "release", f"torch {release}", "what changed against the release before", addresses.release(str(release)), [minor(release)]
        )
    for name, rows in view.subjects.items():
        yield _entry("model", name, f"{len(rows):,} cases", addresses.subject(name))
    for name, text in view.guards.items():
        yield _entry("guard", name, text, addresses.guard(name))
    for each in operators:
        called = ("aten", "torch")  # whichever of its names it is asked by: aten::mm, torch.mm
        yield replace(_entry("operator", each.name, "on MPS", addresses.operator(each.name), called), answer=each.sentence)
    for row in view.rows.values():
        found = _entry("case", row.case, row.title, addresses.case(row.case), _reasons(row))
        yield replace(found, answer=passing(view, row))


def _reasons(row: Row) -> Iterable[str]:
    return {reason_of(record)[:_REASON] for record in row.records if record is not None}


def _entry(kind: str, name: str, about: str, address: str, more: Iterable[str] = ()) -> Entry:
    texts = (name, about, *(() if kind == "case" else (kind,)), *more, name.replace("_", ""))  # rms_norm, and as one word
    words = {word[:_LONGEST_WORD] for text in texts for word in _WORD.findall(text.lower())}
    return Entry(kind, one_line(name, 200), one_line(about, 200), address, frozenset(words))


def _script(kind: str, key: object, value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")
    return f"conformanceSearch({json.dumps(kind)},{json.dumps(key)},{text});\n"
