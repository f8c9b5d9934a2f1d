"""What PyTorch's own lists say of MPS, and what OpInfos dispatch: executed in an environment of the release, and the digest that ships."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from conformance.errors import ConfigError
from conformance.incell.upstreamwords import DTYPES, PHASES, WORDS
from conformance.mps.answers import Needs
from conformance.mps.declarations import EXPLICIT, IMPLICIT
from conformance.mps.recorders import run_in_cell
from conformance.mps.registrations import DIRECT
from conformance.mps.table import Table, plain

#: Written by `conformance mps lists`.
DATA = Path(__file__).parent.parent / "data" / "mps-upstream.json"
#: The first release that brings the lists.
SINCE = "2.8"
#: What the environment of a release needs beside torch to import its operator database.
REQUIREMENTS = ("expecttest", "pyyaml", "setuptools<80", "numpy")
#: The macOS whose conditions are taken in the lists.
MACOS = "15.0"


@dataclass(frozen=True)
class Lists:
    """The lists of one release, {OpInfo: {dtype: [forward, backward]}}, and what its OpInfos dispatched in float32.

    A release before SINCE has no lists.
    """

    release: str
    words: Mapping[str, Mapping[str, Sequence[str]]]
    recordings: Mapping[str, dict[str, Any]]

    def truth(self, dtype: str = "float32", phase: str = "forward") -> dict[str, str]:
        """OpInfo -> its word for a dtype in a phase."""
        return {name: words[dtype][PHASES.index(phase)] for name, words in self.words.items()}


def executed(python: Path, table: Table, *, samples: int = 60) -> Lists:
    """The lists of the release that an interpreter has, and its recordings. Raises ConfigError where they cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        words, recordings, settings = (Path(folder) / name for name in ("words.json", "recordings.json", "settings.json"))
        asked = {"entered": table.entered, "dtype": "float32", "samples": samples, "out": str(recordings)}
        settings.write_text(json.dumps(asked), encoding="utf-8")
        found = _run(python, "conformance.incell.opinfo_recording", [str(settings)], recordings)
        release = Version(found["torch"]).base_version
        told = _run(python, "conformance.incell.upstream", [MACOS, str(words)], words) if Version(release) >= Version(SINCE) else {}
        return Lists(release, told, found["ops"])


def _run(python: Path, module: str, arguments: Sequence[str], out: Path) -> dict[str, Any]:
    """What a module of the cell wrote to `out`."""
    told = run_in_cell(python, module, arguments, str(out.parent))
    if not out.is_file():
        raise ConfigError(f"{python}: torch's lists cannot be executed there: {told}")
    return json.loads(out.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Digest:
    """What ships of the lists: per OpInfo and release a letter a dtype and phase; and what composite operators call."""

    releases: tuple[str, ...] = ()
    #: OpInfo -> release -> letters, forward for each of DTYPES, then backward.
    letters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Operator of aten -> the OpInfos that test it.
    opinfos: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Composite operator -> release -> the operators that it calls there and that some release has no kernel for.
    needs: Mapping[str, Mapping[str, Needs]] = field(default_factory=dict)

    @property
    def recorded(self) -> list[str]:
        """The releases in which it was recorded what composites call."""
        return sorted({release for known in self.needs.values() for release in known}, key=Version)

    def needs_on(self, release: str) -> dict[str, Needs]:
        """Composite operator -> what it calls in a release, for those that were recorded there: other releases may call others."""
        return {operator: known[release] for operator, known in self.needs.items() if release in known}

    def words(self, operator: str, release: str, dtype: str, phase: str = "forward") -> dict[str, str]:
        """OpInfo -> what the release's list says of it, for the OpInfos that test the operator; nothing for a dtype that is not tested."""
        if dtype not in DTYPES:
            return {}
        at = PHASES.index(phase) * len(DTYPES) + DTYPES.index(dtype)
        found = {name: self.letters.get(name, {}).get(release, "") for name in self.opinfos.get(operator.partition(".")[0], ())}
        return {name: _WORD[letters[at]] for name, letters in found.items() if letters}

    def with_lists(self, lists: Lists, table: Table) -> Digest:
        """The digest with one more release, or one anew."""
        letters = {name: dict(known) for name, known in self.letters.items()}
        for name, words in lists.words.items():
            letters.setdefault(name, {})[lists.release] = "".join(words[dtype][at][0] for at in range(len(PHASES)) for dtype in DTYPES)
        opinfos = {name: list(known) for name, known in self.opinfos.items()}
        for name, recording in lists.recordings.items():
            known = opinfos.setdefault(plain(recording["aten"]), [])
            known += [name] if name not in known else []
        listed = {*self.releases, *([lists.release] if lists.words else [])}
        needs = self._with_needs(lists.release, _needs(lists, table))
        return Digest(tuple(sorted(listed, key=Version)), dict(sorted(letters.items())), dict(sorted(opinfos.items())), needs)

    def _with_needs(self, release: str, found: Mapping[str, Needs]) -> dict[str, dict[str, Needs]]:
        needs: dict[str, dict[str, Needs]] = {}
        for operator in sorted({*self.needs, *found}):
            known = {each: what for each, what in self.needs.get(operator, {}).items() if each != release}
            known |= {release: found[operator]} if operator in found else {}
            needs |= {operator: dict(sorted(known.items(), key=lambda each: Version(each[0])))} if known else {}
        return needs


_WORD = {word[0]: word for word in WORDS}


def _needs(lists: Lists, table: Table) -> dict[str, Needs]:
    """What each composite operator's forward comes down to and not every release has a kernel for, over all its OpInfos."""
    calls: dict[str, list[tuple[set[str], set[str]]]] = {}
    for recording in lists.recordings.values():
        operator = plain(recording["aten"])
        if set(table.rows.get(operator, "")) & set(EXPLICIT + IMPLICIT) and recording["samples"]:
            calls.setdefault(operator, []).append(_called(operator, recording, table, lists.release))
    found = {}
    for operator, parts in calls.items():
        always = set.intersection(*(every for every, _ in parts))
        found[operator] = Needs(tuple(sorted(always)), tuple(sorted(set.union(*(some for _, some in parts)) - always)))
    return found


def _called(operator: str, recording: dict[str, Any], table: Table, release: str) -> tuple[set[str], set[str]]:
    """The kernels that every sample of an OpInfo calls, and those that any of them calls.

    What runs inside an operator that has an entry for MPS of its own in the release is not reached there.
    """
    forward = [(op, inside, samples) for op, phase, inside, _, count, samples in recording["seen"] if phase == "forward" and count]
    composites = {parent for _, inside, _ in forward for parent in inside}
    callers: dict[str, set[int]] = {}
    for op, inside, samples in forward:
        if any(table.letter(parent, release) in DIRECT for parent in inside):
            continue
        if op not in composites and op != operator and _is_kernel(op, table):
            callers.setdefault(op, set()).update(samples)
    return {op for op, samples in callers.items() if len(samples) == recording["samples"]}, set(callers)


def _is_kernel(op: str, table: Table) -> bool:
    letters = table.rows.get(op, "")
    return bool(letters) and not set(letters) <= set(DIRECT + EXPLICIT + IMPLICIT)


@functools.cache
def digest() -> Digest:
    """The digest that ships."""
    if not DATA.is_file():
        return Digest()
    data = json.loads(DATA.read_text(encoding="utf-8"))
    patterns = data["patterns"]
    letters = {
        name: {release: patterns[at] for release, at in zip(data["releases"], known) if at is not None}
        for name, known in data["letters"].items()
    }
    needs = {operator: _unfolded(stretches, data["recorded"]) for operator, stretches in data["needs"].items()}
    return Digest(tuple(data["releases"]), letters, data["opinfos"], needs)


def write(made: Digest) -> None:
    """Put the digest where it ships: each pattern of letters once."""
    patterns = sorted({letters for known in made.letters.values() for letters in known.values()})
    at = {pattern: number for number, pattern in enumerate(patterns)}
    letters = {name: [at.get(known.get(release, "")) for release in made.releases] for name, known in made.letters.items()}
    needs = {operator: _folded(known, made.recorded) for operator, known in made.needs.items()}
    data = {"releases": made.releases, "recorded": made.recorded, "patterns": patterns, "letters": letters}
    data |= {"opinfos": made.opinfos, "needs": needs}
    lines = [f"{json.dumps(key)}: {_listed(value)}" for key, value in data.items()]
    DATA.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    digest.cache_clear()


def _folded(known: Mapping[str, Needs], recorded: Sequence[str]) -> dict[str, list[Sequence[str]] | None]:
    """Release from which on -> [always, sometimes], null where the operator was not recorded: a stretch of equal releases once."""
    found: dict[str, list[Sequence[str]] | None] = {}
    before: Needs | None = None
    for release in recorded:
        needs = known.get(release)
        if needs != before:
            found[release] = [needs.always, needs.sometimes] if needs is not None else None
        before = needs
    return found


def _unfolded(stretches: Mapping[str, list[list[str]] | None], recorded: Sequence[str]) -> dict[str, Needs]:
    found: dict[str, Needs] = {}
    holds: Needs | None = None
    for release in recorded:
        if release in stretches:
            parts = stretches[release]
            holds = Needs(*map(tuple, parts)) if parts is not None else None
        if holds is not None:
            found[release] = holds
    return found


def _listed(value: Mapping[str, Any] | Iterable[Any]) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(list(value))
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()) + "}"
