"""The answer for one overload on one release: a word, why, and where it is known from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class Needs:
    """What a composite calls in one release: whatever its arguments are, and for some of them."""

    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()


def answer(table: Table, name: str, release: str, needs: Mapping[str, Needs] | None = None) -> Answer:
    """What `release` has for an overload on MPS. `needs`: what composites call in that release, where it is known."""
    letter = table.letter(name, release)
    if letter in (EXPLICIT, IMPLICIT):
        return _composite(table, name, release, needs or {})
    return _PLAIN[letter](table, name)


def _composite(table: Table, name: str, release: str, needs: Mapping[str, Needs]) -> Answer:
    """A composite is as good as what it calls; what that is may be known by having been recorded, or by what it was generated from."""
    base = Needs((table.via[name],)) if name in table.via else None
    called = needs.get(name, needs.get(name.partition(".")[0], base))
    if called is None:
        return Answer("composite", "what it needs was not recorded")
    words = {each: answer(table, each, release, {}).word for each in (*called.always, *called.sometimes)}
    for word, among in (("no", STOPS), ("cpu-fallback", {"cpu-fallback"})):
        always, sometimes = ([each for each in part if words[each] in among] for part in (called.always, called.sometimes))
        if always:
            return Answer(word, f"calls {_listed(table, always)}")
        if sometimes:
            how = "has no kernel" if word == "no" else "runs on the CPU"
            return Answer("composite", f"some arguments need {_listed(table, sometimes)}, which {how}")
    named = sorted(words)
    return Answer("composite", f"needs {', '.join(named)}" if named else "needs only what every release has")


def _listed(table: Table, names: Sequence[str]) -> str:
    return ", ".join(error_name(table, each) for each in names)


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
