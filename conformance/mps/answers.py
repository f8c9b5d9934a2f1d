"""The answer for one overload on one release: a word, why, and where it is known from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.mps.declarations import DELEGATE, EXPLICIT, IMPLICIT, KERNEL
from conformance.mps.registrations import FALLBACK, PYTHON, STUB
from conformance.mps.table import ABSENT, Table

#: The words of a cell, worst first.
WORDS = ("no", "dtype-no", "os-too-old", "unknown", "cpu-fallback", "composite", "yes")
#: The words that say that a program stops there.
STOPS = frozenset({"no", "dtype-no", "os-too-old"})
#: What an answer is known from. Only a device makes an observation.
SOURCES = ("registered", "upstream-tested", "observed")


@dataclass(frozen=True)
class Answer:
    """`detail` completes the word: what the error names, what a composite needs, which macOS it takes."""

    word: str
    detail: str = ""
    source: str = "registered"

    def __str__(self) -> str:
        return f"{self.word} ({self.detail})" if self.detail else self.word


def answer(table: Table, name: str, release: str, needs: Mapping[str, list[str]] | None = None) -> Answer:
    """What `release` has for an overload on MPS. `needs`: what composites call, where it is known."""
    letter = table.letter(name, release)
    if letter in (EXPLICIT, IMPLICIT):
        return _composite(table, name, release, needs or {})
    return _PLAIN[letter](table, name)


def _composite(table: Table, name: str, release: str, needs: Mapping[str, list[str]]) -> Answer:
    """A composite is as good as what it calls; what that is may be known by having been recorded, or by what it was generated from."""
    base = [table.via[name]] if name in table.via else None
    called = needs.get(name, needs.get(name.partition(".")[0], base))
    if called is None:
        return Answer("composite", "what it needs was not recorded")
    lacking = [each for each in called if answer(table, each, release, {}).word in STOPS]
    if lacking:
        named = ", ".join(error_name(table, each) for each in lacking)
        return Answer("no", f"calls {named}")
    fallen = [each for each in called if answer(table, each, release, {}).word == "cpu-fallback"]
    if fallen:
        return Answer("cpu-fallback", f"calls {', '.join(fallen)}")
    return Answer("composite", f"needs {', '.join(called)}" if called else "needs only what every release has")


def error_name(table: Table, name: str) -> str:
    """The name that the error has: a structured overload's kernel is its out overload's."""
    return f"aten::{table.via.get(name, name)}"


_PLAIN = {
    KERNEL: lambda table, name: Answer("yes"),
    DELEGATE: lambda table, name: Answer("yes"),
    PYTHON: lambda table, name: Answer("yes", "registered in Python"),
    FALLBACK: lambda table, name: Answer("cpu-fallback", "always, with a warning"),
    STUB: lambda table, name: Answer("no", f"{error_name(table, name)} is registered and raises"),
    "n": lambda table, name: Answer("no", error_name(table, name)),
    ABSENT: lambda table, name: Answer("unknown", "that release has no such operator"),
}
