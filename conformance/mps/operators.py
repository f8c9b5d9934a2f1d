"""One operator over all releases: what each has for its overloads, in a line a span of equal answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from conformance.errors import ConfigError
from conformance.mps import hazards, testlists
from conformance.mps.answers import STOPS, Answer, answer
from conformance.mps.audits import ON_MPS
from conformance.mps.table import ABSENT, Table, plain
from conformance.selectors import close_matches


def overloads(table: Table, text: str) -> list[str]:
    """The overloads that `text` means: `linalg_qr`, `torch.linalg.qr`, `aten::linalg_qr.out`, `F.embedding_bag`.

    Raises ConfigError with the close matches where there is none.
    """
    name = plain(text.strip())
    found = [name] if "." in name and name in table.rows else table.overloads(name)
    found = found or table.overloads(f"_{name}")
    if not found:
        known = sorted({row.partition(".")[0] for row in table.rows})
        raise ConfigError(f"no operator {text!r} in any release of the table{close_matches(name, known)}")
    return found


def spans(answers: Sequence[tuple[str, Answer]]) -> Iterator[tuple[str, str, Answer]]:
    """Neighbouring releases with one answer: the first, the last, and the answer."""
    for what, group in groupby(answers, key=lambda each: each[1]):
        releases = [release for release, _ in group]
        yield releases[0], releases[-1], what


def told(table: Table, text: str, releases: Sequence[str], dtype: str, macos: str) -> tuple[list[str], bool]:
    """The answer for an operator and a dtype in a terminal, and whether every release runs it; overloads with equal answers together."""
    grouped: dict[tuple[tuple[str, Answer], ...], list[str]] = {}
    names = overloads(table, text)
    for name in names:
        grouped.setdefault(tuple(_answers(table, name, releases, dtype, macos)), []).append(name)
    lines = []
    for answers, alike in grouped.items():
        lines.append(", ".join(f"aten::{name}" for name in alike))
        if not answers:
            lines.append(f"    in none of torch {releases[0]} .. {releases[-1]}")
        lines += [f"    {_span(first, last):<18} {what}  [{what.source}]" for first, last, what in spans(answers)]
        lines.append(f"    {_first(table, alike[0])}")
    lines += _upstream(names[0], releases, dtype)
    named = [hazard for hazard in hazards.known() if hazard.ops != ("*",)]
    faults = [hazard for hazard in named if any(hazard.holds(names[0], release, macos) for release in releases)]
    lines += [f"  known fault: {hazard}" for hazard in faults]
    runs = all(answer.word not in STOPS for answers in grouped for _, answer in answers)
    return lines, runs


def _answers(table: Table, name: str, releases: Sequence[str], dtype: str, macos: str) -> Iterator[tuple[str, Answer]]:
    for release in releases:
        if table.letter(name, release) != ABSENT:
            yield (
                release,
                _refused(release, dtype, macos) or answer(table, name, release, {**testlists.digest().needs_on(release), **ON_MPS}),
            )


def _refused(release: str, dtype: str, macos: str) -> Answer | None:
    """The answer that a dtype or a macOS gives before any kernel is asked."""
    if not hazards.starts(release, macos):
        return Answer("os-too-old", f"MPS of torch {release} wants macOS {hazards.lowest_macos(release)}")
    kinds = {"float64": "float64", "complex128": "float64", "complex64": "complex"}
    flags = {kinds[dtype]: [dtype, ""]} if dtype in kinds else {}
    for hazard in hazards.known():
        if hazard.dtype and hazard.holds("*", release, macos) and hazard.seen(flags, (dtype,)):
            return hazard.answer("")
    return None


def _upstream(name: str, releases: Sequence[str], dtype: str) -> Iterator[str]:
    """What PyTorch's own lists say of the operator, a line an OpInfo and span of releases."""
    digest = testlists.digest()
    words = {release: digest.words(name, release, dtype) for release in releases if release in digest.releases}
    for opinfo in sorted({opinfo for told in words.values() for opinfo in told}):
        told = [(release, Answer(found[opinfo], source="upstream-tested")) for release, found in words.items() if opinfo in found]
        for first, last, what in spans(told):
            yield f"  {opinfo}, {dtype}: {_span(first, last)} {what}  [{what.source}]"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} .. {last}"


def _first(table: Table, name: str) -> str:
    first = table.first(name)
    if first:
        return f"first release with an entry of its own: {first}"
    return f"no release up to {table.releases[-1]} has an entry of its own"
