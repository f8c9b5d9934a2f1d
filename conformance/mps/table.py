"""The table that ships: every overload of every release, with a letter for what that release has for it on MPS.

One line an overload in data/mps.json, one letter a release: `m` a kernel, `d` a kernel through its structured overload, `p` a kernel
registered in Python, `f` always runs on the CPU, `s` registered and only raises, `e` composite-explicit (calls other operators),
`i` composite-implicit (decomposes before any device), `n` nothing, `.` the release has no such overload.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from conformance.mps import declarations
from conformance.mps.declarations import DELEGATE, KERNEL
from conformance.mps.registrations import DIRECT, FALLBACK, PYTHON, STUB

#: Written by `conformance mps table`.
DATA = Path(__file__).parent.parent / "data" / "mps.json"
ABSENT = "."


#: Namespaces that are part of an operator's name, as in `linalg_qr` for torch.linalg.qr.
_KEPT = re.compile(r"\b(linalg|fft|special)\.")
_DROPPED = re.compile(r"^(aten::|torch\.ops\.aten\.|torch\.nn\.functional\.|nn\.functional\.|F\.|torch\.Tensor\.|Tensor\.|torch\.)")


def plain(name: str) -> str:
    """An operator's name in aten, for a name of torch: `torch.linalg.qr` -> `linalg_qr`, `F.embedding_bag` -> `embedding_bag`."""
    return _KEPT.sub(lambda found: f"{found.group(1)}_", _DROPPED.sub("", name))


@dataclass(frozen=True)
class Table:
    """`rows`: overload -> one letter a release. `via`: overload -> the structured or generating one that it stands on.

    `entered`: operators that decompose elsewhere and have an entry for MPS in some release: what a CPU runs inside them, MPS does not.
    """

    releases: tuple[str, ...] = ()
    rows: Mapping[str, str] = field(default_factory=dict)
    via: Mapping[str, str] = field(default_factory=dict)
    entered: tuple[str, ...] = ()

    def letter(self, name: str, release: str) -> str:
        """What `release` has for the overload; `.` where it does not exist."""
        row = self.rows.get(name)
        return row[self.releases.index(release)] if row else ABSENT

    def overloads(self, operator: str) -> list[str]:
        """The overloads of an operator, itself first: `linalg_qr` -> `linalg_qr`, `linalg_qr.out`."""
        return sorted(name for name in self.rows if name == operator or name.startswith(f"{operator}."))

    def first(self, name: str) -> str:
        """The first release that has a kernel for it; empty where none has."""
        letters = self.rows.get(name, "")
        return next((release for release, letter in zip(self.releases, letters) if letter in DIRECT), "")

    def counts(self, release: str) -> dict[str, int]:
        """How many overloads have each letter in a release."""
        at = self.releases.index(release)
        found: dict[str, int] = {}
        for letters in self.rows.values():
            found[letters[at]] = found.get(letters[at], 0) + 1
        return found

    def with_release(self, release: str, rows: Mapping[str, declarations.Declared]) -> Table:
        """The table with one more release, or one anew."""
        known = {name: dict(zip(self.releases, letters)) for name, letters in self.rows.items()}
        for letters in known.values():
            letters.pop(release, None)
        for name, row in rows.items():
            known.setdefault(name, {})[release] = row.kind
        releases = tuple(sorted({*self.releases, release}, key=Version))
        merged = {name: "".join(letters.get(each, ABSENT) for each in releases) for name, letters in sorted(known.items())}
        via = {**self.via, **{name: row.via for name, row in rows.items() if row.via}}
        entered = {*self.entered, *(name for name, row in rows.items() if row.decomposes and row.kind in DIRECT)}
        kept = {name: letters for name, letters in merged.items() if set(letters) != {ABSENT}}
        return Table(releases, kept, dict(sorted(via.items())), tuple(sorted(entered)))


@functools.cache
def stored() -> Table:
    """The table that ships."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return Table(tuple(data["releases"]), data["rows"], data["via"], tuple(data["entered"]))


def write(table: Table) -> None:
    """Put the table where it ships, a line an overload."""
    data = {"releases": table.releases, "entered": table.entered, "via": table.via, "rows": table.rows}
    DATA.write_text(json.dumps(data, indent=0) + "\n", encoding="utf-8")
    stored.cache_clear()


def with_installed(table: Table, release: str, text: str) -> Table:
    """The table with what an installed torch declares for itself, which wins over what is stored for its release.

    What is registered by hand stands in no yaml: it stays as it is stored, or as the newest release before it has it.
    """
    before = [each for each in table.releases if Version(each) <= Version(release)] or list(table.releases[:1])
    rows = column(text)
    for name, row in rows.items():
        letter = table.letter(name, before[-1])
        if letter in (FALLBACK, STUB, PYTHON) and row.kind not in (KERNEL, DELEGATE):
            rows[name] = replace(row, kind=letter)
    return table.with_release(release, rows)


def column(text: str) -> dict[str, declarations.Declared]:
    """The rows of one torch from its own native_functions.yaml."""
    return {row.name: row for row in declarations.declared(text)}
