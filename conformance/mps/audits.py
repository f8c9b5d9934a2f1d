"""What a recording of a model comes to on a range of releases: an answer for each operator and release, the hazards, and where to look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import Version

from conformance.mps import hazards
from conformance.mps.answers import STOPS, WORDS, Answer, Needs, answer
from conformance.mps.declarations import EXPLICIT, IMPLICIT
from conformance.mps.registrations import DIRECT
from conformance.mps.table import ABSENT, Table

#: Composite operators that pick the device's own kernel: what that is on MPS.
ON_MPS = {
    "convolution": Needs(("_mps_convolution",)),
    "convolution_overrideable": Needs(("_mps_convolution",)),
    "_convolution": Needs(("_mps_convolution",)),
    "convolution_backward": Needs(("mps_convolution_backward",)),
}
_COMPOSITES = EXPLICIT + IMPLICIT


@dataclass
class Row:
    """One operator: what each release has for it, in which phases it runs, and its first call site."""

    op: str
    phases: list[str] = field(default_factory=list)
    site: str = ""
    source: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def worst(self) -> str:
        """The worst word of its cells."""
        return min((answer.word for answer in self.answers.values()), key=WORDS.index, default="yes")


@dataclass
class Danger:
    """One hazard that the model runs into: the operator, the releases, the detail and the call site."""

    hazard: hazards.Hazard
    op: str
    detail: str
    site: str
    releases: list[str] = field(default_factory=list)


@dataclass
class Audit:
    """The audit of one subject on one device."""

    subject: str
    device: str
    releases: tuple[str, ...]
    #: Release that was looked up -> the build that it was recorded with.
    recorded: dict[str, str]
    rows: dict[str, Row] = field(default_factory=dict)
    dangers: list[Danger] = field(default_factory=list)
    #: Release -> why its recording was made on the CPU and not on meta, where that was asked.
    on_cpu: dict[str, str] = field(default_factory=dict)
    #: Release -> why it cannot be answered for at all.
    refused: dict[str, str] = field(default_factory=dict)

    def stopping(self, release: str) -> list[Row]:
        """The operators that the model stops at on a release."""
        return [row for row in self.rows.values() if row.answers.get(release, Answer("yes")).word in STOPS]

    def silent(self, release: str) -> list[Danger]:
        """What is known to go wrong in silence there: no condition on values, and not mended in a release that we do not know."""
        certain = (danger for danger in self.dangers if danger.hazard.effect == "wrong" and danger.hazard.certain)
        return [danger for danger in certain if release in danger.releases]

    @property
    def exit_code(self) -> int:
        """0 where every release runs the whole model as far as is known, else 1."""
        bad = any(self.stopping(release) or self.silent(release) or release in self.refused for release in self.releases)
        return int(bad)


def of(
    recordings: Mapping[str, dict[str, Any]],
    table: Table,
    releases: Sequence[str],
    *,
    subject: str = "",
    device: str = "mps",
    macos: str = "26",
) -> Audit:
    """The audit of recordings (release that they stand for -> what the recorder wrote).

    A release without a recording of its own is answered from the newest one there is.
    """
    newest = list(recordings)[-1]
    audit = Audit(subject, device, tuple(releases), {})
    for release in releases:
        recording = recordings.get(release, recordings[newest])
        audit.recorded[release] = recording["torch"]
        if recording.get("refused"):
            audit.on_cpu[release] = recording["refused"]
        if device == "mps" and not hazards.starts(release, macos):
            audit.refused[release] = f"os-too-old: torch {release} wants macOS {hazards.lowest_macos(release)} for MPS"
        asker = _asker(recording, table, release, device)
        if asker is None:
            audit.refused[release] = f"no answer: torch {recording['torch']}, which recorded, has no {device} backend"
        else:
            _look_up(audit, recording, release, asker, macos)
    return audit


@dataclass(frozen=True)
class _Asker:
    """What a release has for an operator: its letter, and the answer."""

    letter: Callable[[str], str]
    answer: Callable[[str], Answer]


def _asker(recording: dict[str, Any], table: Table, release: str, device: str) -> _Asker | None:
    """What answers for a release; None where the build that recorded does not know the device."""
    if device == "mps":
        return _Asker(lambda op: table.letter(op, release), lambda op: answer(table, op, release, ON_MPS))
    own = recording["dispatcher"].get("Meta" if device == "meta" else device.upper(), {})
    if not own:
        return None
    single = Table((release,), own)
    return _Asker(lambda op: single.letter(op, release), lambda op: _elsewhere(answer(single, op, release), device))


def _elsewhere(found: Answer, device: str) -> Answer:
    return Answer("cpu-fallback", f"{device} has no kernel for it") if found.word == "cpu-fallback" else found


def _look_up(audit: Audit, recording: dict[str, Any], release: str, ask: _Asker, macos: str) -> None:
    parents = {parent for seen in recording["seen"] for parent in seen["inside"]}
    feared = hazards.of(release, macos) if audit.device == "mps" else ()
    elsewhere = Version(recording["torch"]).base_version != release
    for seen in recording["seen"]:
        if any(ask.letter(parent) in DIRECT for parent in seen["inside"]):
            continue  # a kernel of the device stands in front of it
        found = _found(seen["op"], ask, opened=seen["op"] in parents, called=seen["count"] > 0)
        gone = [parent for parent in seen["inside"] if elsewhere and ask.letter(parent) == ABSENT]
        if gone and found is not None and found.word in STOPS:
            found = Answer("unknown", f"called by {gone[-1]}, which that release has not")
        for hazard in feared:
            about = hazard.seen(seen["flags"], seen["dtypes"]) if hazard.is_about(seen["op"], seen["inside"]) else None
            if about is not None:
                _note_danger(audit, hazard, seen, about, release)
                if hazard.stops and (found is None or found.word not in STOPS):
                    found = hazard.answer(about[0])
        if found is not None:
            _note(audit, seen, release, found)


def _found(op: str, ask: _Asker, *, opened: bool, called: bool) -> Answer | None:
    """The answer for an operator; None where others stand for it: an opened composite, a function, a kernel that is the CPU's own."""
    if "::" in op:
        return Answer("unknown", "a custom operator: its own library registers its kernels")
    letter = ask.letter(op)
    if not called or "_for_cpu" in op or (opened and letter in (*_COMPOSITES, ABSENT)):
        return None
    return ask.answer(op)


def _note(audit: Audit, seen: dict[str, Any], release: str, found: Answer) -> None:
    row = audit.rows.setdefault(seen["op"], Row(seen["op"], site=seen["site"], source=seen["source"]))
    if seen["phase"] not in row.phases:
        row.phases.append(seen["phase"])
    known = row.answers.get(release)
    if known is None or WORDS.index(found.word) < WORDS.index(known.word):
        row.answers[release] = found


def _note_danger(audit: Audit, hazard: hazards.Hazard, seen: dict[str, Any], about: tuple[str, str], release: str) -> None:
    op = seen["op"] if hazard.ops != ("*",) else ""
    for danger in audit.dangers:
        if danger.hazard is hazard and danger.op == op:
            break
    else:
        danger = Danger(hazard, op, about[0], about[1] or seen["site"])
        audit.dangers.append(danger)
    if release not in danger.releases:
        danger.releases.append(release)


def ranges(releases: Iterable[str], known: Sequence[str]) -> str:
    """Releases in words: neighbours of the list of known ones as one span."""
    wanted = set(releases)
    told: list[str] = []
    run: list[str] = []
    for release in [*known, ""]:
        if release in wanted:
            run.append(release)
        elif run:
            told.append(run[0] if len(run) == 1 else f"{run[0]} .. {run[-1]}")
            run = []
    return ", ".join(told)
