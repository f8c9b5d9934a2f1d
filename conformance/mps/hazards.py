"""Known faults of MPS beyond missing kernels: which calls, in which releases, with what effect, and who reported them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance import tomlfiles
from conformance.mps.answers import Answer

DATA = Path(__file__).parent.parent / "data" / "hazards.toml"
EFFECTS = ("raises", "aborts", "wrong")
#: The lowest macOS that a release starts MPS on, by the message in its library; the last one that holds counts.
LOWEST_MACOS = ((">=1.13", "12.3"), (">=2.6", "13.0"), (">=2.9", "14.0"), (">=2.15", "15.0"))


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """One entry of data/hazards.toml."""

    source: str
    ops: tuple[str, ...]
    releases: SpecifierSet
    effect: str
    text: str
    flag: str = ""
    dtypes: tuple[str, ...] = ()
    macos: str = ""
    dtype: bool = False
    when: str = ""
    not_inside: tuple[str, ...] = ()
    fix: str = ""

    def holds(self, op: str, release: str, macos: str, inside: Sequence[str] = ()) -> bool:
        """Whether the entry is about that overload under those composites, in that release, on that macOS."""
        return self.is_about(op, inside) and self.is_in(release, macos)

    def is_in(self, release: str, macos: str) -> bool:
        """Whether the entry is about that release on that macOS."""
        return self.releases.contains(release) and (not self.macos or SpecifierSet(self.macos).contains(macos))

    def is_about(self, op: str, inside: Sequence[str] = ()) -> bool:
        """Whether the entry is about that overload under those composites."""
        name = op.partition(".")[0]
        if self.not_inside and {name, *(each.partition(".")[0] for each in inside)} & set(self.not_inside):
            return False
        return _named(self.ops, name)

    def seen(self, flags: Mapping[str, Sequence[str]], dtypes: Iterable[str]) -> tuple[str, str] | None:
        """The detail and the call site of the call that it is about; None where no such call was recorded."""
        if self.flag:
            found = flags.get(self.flag)
            return (found[0], found[1]) if found else None
        if self.dtypes:
            found_dtypes = sorted(set(self.dtypes) & set(dtypes))
            return (", ".join(found_dtypes), "") if found_dtypes else None
        return "", ""

    @property
    def certain(self) -> bool:
        """Whether it holds for every such call of its releases, as far as is known."""
        return not self.when and not self.fix

    @property
    def stops(self) -> bool:
        """Whether a program ends there."""
        return self.effect != "wrong" and self.certain

    def answer(self, detail: str) -> Answer:
        """The word of a cell where the program stops."""
        word = "os-too-old" if self.macos else "dtype-no" if self.dtype else "no"
        return Answer(word, f"{self.text}{f': {detail}' if detail else ''}; {self.source}")

    def __str__(self) -> str:
        conditions = [self.when, f"macOS {self.macos}" if self.macos else "", "fix not known" if self.fix == "unknown" else ""]
        told = "; ".join(condition for condition in conditions if condition)
        return f"{self.effect}: {self.text} ({self.source}; torch {self.releases}{f'; {told}' if told else ''})"


@functools.cache
def _named(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@functools.cache
def known() -> tuple[Hazard, ...]:
    """Every entry, in the order of the file."""
    return tuple(_hazard(entry) for entry in tomlfiles.read(DATA)["hazard"])


def of(release: str, macos: str) -> tuple[Hazard, ...]:
    """The entries about a release on a macOS."""
    return tuple(hazard for hazard in known() if hazard.is_in(release, macos))


def lowest_macos(release: str) -> str:
    """The lowest macOS whose MPS a release takes."""
    return [macos for releases, macos in LOWEST_MACOS if SpecifierSet(releases).contains(release)][-1]


def starts(release: str, macos: str) -> bool:
    """Whether a release has MPS at all on that macOS."""
    return Version(macos) >= Version(lowest_macos(release))


def _hazard(entry: dict[str, Any]) -> Hazard:
    listed: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    listed["releases"] = SpecifierSet(entry["releases"])
    return Hazard(**listed)
