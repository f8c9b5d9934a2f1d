"""Every operator by release, what is registered, upstream-tested and observed side by side: the data of a page of operators."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.incell.verdicts import Verdict
from conformance.mps import testlists
from conformance.mps.answers import Answer, answer
from conformance.mps.audits import ON_MPS
from conformance.mps.table import ABSENT, Table, stored
from conformance.results import ResultSet

#: Operator -> release -> the verdict of the worst of its cases that ran on MPS.
Observed = Mapping[str, Mapping[str, str]]
#: Verdicts that say something of torch on the device.
_TELLING = frozenset(Verdict) - {Verdict.ERROR, Verdict.MISSING, Verdict.UNSUPPORTED}


@dataclass(frozen=True)
class Cell:
    """What is known of an operator on a release: an answer each from registration, PyTorch's lists (float32, forward) and devices."""

    registered: Answer
    upstream: str = ""
    observed: str = ""


@dataclass(frozen=True)
class OpRow:
    """One operator of aten: `first` is the first release with a kernel of its own, empty where none has."""

    name: str
    first: str
    cells: Mapping[str, Cell]


def rows(observed: Observed | None = None, dtype: str = "float32", table: Table | None = None) -> list[OpRow]:
    """A row for each operator that a release of the table has, by its plain overload; cells for the releases that have it."""
    table = table or stored()
    digest = testlists.digest()
    needs = {release: {**digest.needs_on(release), **ON_MPS} for release in table.releases}
    found = []
    for name in _operators(table):
        seen = (observed or {}).get(name.partition(".")[0], {})
        cells = {
            release: Cell(answer(table, name, release, needs[release]), agreed(digest.words(name, release, dtype)), seen.get(release, ""))
            for release in table.releases
            if table.letter(name, release) != ABSENT
        }
        found.append(OpRow(name, table.first(name), cells))
    return found


def _operators(table: Table) -> Iterator[str]:
    """One overload an operator: the plain one, else the first by name."""
    seen: set[str] = set()
    for name in sorted(table.rows, key=lambda row: (row.partition(".")[0], row.partition(".")[2] != "", row)):
        base = name.partition(".")[0]
        if base not in seen:
            seen.add(base)
            yield name


def agreed(words: Mapping[str, str]) -> str:
    """One word for an operator that several OpInfos test: `mixed` where they disagree."""
    told = sorted(set(words.values()) - {"skip"})
    return told[0] if len(told) == 1 else "mixed" if told else ""


def observed(result: ResultSet) -> Observed:
    """What the sweep's cases of single operators came to on MPS: `mps.op[<OpInfo>-<dtype>]`, a dot in a name an underscore."""
    operators = {name.replace(".", "_"): operator for operator, names in testlists.digest().opinfos.items() for name in names}
    found: dict[str, dict[str, str]] = {}
    for cell in result.cells:
        if cell.cell.device != "mps":
            continue
        for case, record in cell.outcomes().items():
            named = re.fullmatch(r"mps\.op\[(\w+)-\w+\]", case)
            if named and record["verdict"] in _TELLING:
                known = found.setdefault(operators.get(named.group(1), named.group(1)), {})
                verdicts = [record["verdict"], *([known[cell.cell.torch]] if cell.cell.torch in known else [])]
                known[cell.cell.torch] = min(verdicts, key=lambda verdict: Verdict(verdict).severity)
    return found


def as_csv(found: Sequence[OpRow]) -> str:
    """A line an operator and release."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["operator", "first_release", "release", "registered", "registered_detail", "upstream_tested", "observed"])
    for row in found:
        for release, cell in row.cells.items():
            table.writerow([row.name, row.first, release, cell.registered.word, cell.registered.detail, cell.upstream, cell.observed])
    return out.getvalue()
