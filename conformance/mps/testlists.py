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
    """The lists of one release, {OpInfo: {dtype: [forward, backward]}}, and what its OpInfos dispatched in float32."""

    release: str
    words: Mapping[str, Mapping[str, Sequence[str]]]
    recordings: Mapping[str, dict[str, Any]]

    def truth(self, dtype: str = "float32", phase: str = "forward") -> dict[str, str]:
        """OpInfo -> its word for a dtype in a phase."""
        return {name: words[dtype][PHASES.index(phase)] for name, words in self.words.items()}


def executed(python: Path, table: Table, *, samples: int = 60) -> Lists:
    """The lists of the release that an interpreter has, and its recordings. Raises ConfigError where it has none, or cannot."""
    with tempfile.TemporaryDirectory() as folder:
        words, recordings, settings = (Path(folder) / name for name in ("words.json", "recordings.json", "settings.json"))
        asked = {"entered": table.entered, "dtype": "float32", "samples": samples, "out": str(recordings)}
        settings.write_text(json.dumps(asked), encoding="utf-8")
        for module, arguments, out in (
            ("conformance.incell.upstream", [MACOS, str(words)], words),
            ("conformance.incell.opinfo_recording", [str(settings)], recordings),
        ):
            told = run_in_cell(python, module, arguments, folder)
            if not out.is_file():
                raise ConfigError(f"{python}: torch's lists cannot be executed there (they come with torch {SINCE} and later): {told}")
        found = json.loads(recordings.read_text(encoding="utf-8"))
        return Lists(Version(found["torch"]).base_version, json.loads(words.read_text(encoding="utf-8")), found["ops"])


@dataclass(frozen=True)
class Digest:
    """What ships of the lists: per OpInfo and release a letter a dtype and phase; and what composite operators call."""

    releases: tuple[str, ...] = ()
    #: OpInfo -> release -> letters, forward for each of DTYPES, then backward.
    letters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Operator of aten -> the OpInfos that test it.
    opinfos: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Composite operator -> the operators that it calls and that some release has no kernel for.
    needs: Mapping[str, list[str]] = field(default_factory=dict)

    def words(self, operator: str, release: str, dtype: str, phase: str = "forward") -> dict[str, str]:
        """OpInfo -> what the release's list says of it, for the OpInfos that test the operator; nothing for a dtype that is not tested."""
        if dtype not in DTYPES:
            return {}
        at = PHASES.index(phase) * len(DTYPES) + DTYPES.index(dtype)
        found = {name: self.letters[name].get(release, "") for name in self.opinfos.get(operator.partition(".")[0], ())}
        return {name: _WORD[letters[at]] for name, letters in found.items() if letters}

    def with_lists(self, lists: Lists, table: Table) -> Digest:
        """The digest with one more release, or one anew."""
        letters = {name: dict(known) for name, known in self.letters.items()}
        for name, words in lists.words.items():
            letters.setdefault(name, {})[lists.release] = "".join(words[dtype][at][0] for at in range(len(PHASES)) for dtype in DTYPES)
        opinfos = {name: list(known) for name, known in self.opinfos.items()}
        needs = dict(self.needs)
        for name, recording in lists.recordings.items():
            operator = plain(recording["aten"])
            known = opinfos.setdefault(operator, [])
            known += [name] if name not in known else []
            if set(table.rows.get(operator, "")) & set(EXPLICIT + IMPLICIT) and recording["samples"]:
                needs[operator] = sorted({*needs.get(operator, ()), *_needed(operator, recording, table)})
        releases = tuple(sorted({*self.releases, lists.release}, key=Version))
        return Digest(releases, dict(sorted(letters.items())), dict(sorted(opinfos.items())), dict(sorted(needs.items())))


_WORD = {word[0]: word for word in WORDS}


def _needed(operator: str, recording: dict[str, Any], table: Table) -> list[str]:
    """What a composite operator's forward comes down to and not every release has a kernel for."""
    forward = [(op, inside) for op, phase, inside, _, count in recording["seen"] if phase == "forward" and count]
    composites = {parent for _, inside in forward for parent in inside}
    return [op for op in dict.fromkeys(op for op, _ in forward) if op not in composites and op != operator and _is_kernel(op, table)]


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
    return Digest(tuple(data["releases"]), letters, data["opinfos"], data["needs"])


def write(made: Digest) -> None:
    """Put the digest where it ships: each pattern of letters once."""
    patterns = sorted({letters for known in made.letters.values() for letters in known.values()})
    at = {pattern: number for number, pattern in enumerate(patterns)}
    letters = {name: [at.get(known.get(release, "")) for release in made.releases] for name, known in made.letters.items()}
    data = {"releases": made.releases, "patterns": patterns, "letters": letters, "opinfos": made.opinfos, "needs": made.needs}
    lines = [f"{json.dumps(key)}: {_listed(value)}" for key, value in data.items()]
    DATA.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    digest.cache_clear()


def _listed(value: Mapping[str, Any] | Iterable[Any]) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(list(value))
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()) + "}"
