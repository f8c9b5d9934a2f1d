"""Everything that a release registers for MPS, from its macOS wheel: declared, in Python, and by hand in C++."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import ConformanceError
from conformance.mps import declarations, wheels
from conformance.mps.declarations import DELEGATE, KERNEL, NONE, Declared
from conformance.mps.machobinaries import MEMBER, Library

#: What hand-written registrations add to the letters of a declaration.
FALLBACK, STUB, PYTHON = "fsp"
#: Letters whose operator has an entry of its own at the device's key.
DIRECT = KERNEL + DELEGATE + FALLBACK + PYTHON
#: Kernels in MPSFallback.mm that do nothing but raise.
_STUBS = frozenset({"_slow_conv2d_forward", "upsample_nearest3d.vec"})
#: `lib.impl("op", function, "MPS")`, or without the key where the library object was made for it.
_IMPL = re.compile(r"(\w+)\.impl\(\s*['\"](?:aten::)?([\w.]+)['\"]\s*,[^()]*?(,\s*['\"]MPS['\"])?\s*,?\s*\)", re.S)
_LIBRARY = re.compile(r"(\w+)\s*=\s*(?:torch\.library\.)?_?Library\([^)]*['\"]MPS['\"]")


@dataclass(frozen=True)
class Release:
    """What one release registers: rows by overload, and what the library itself registers, to hold the declarations against."""

    version: str
    rows: dict[str, Declared]
    in_library: frozenset[str]
    in_python: frozenset[str]

    def declared(self) -> frozenset[str]:
        """The overloads that the yaml declares a kernel for."""
        return frozenset(name for name, row in self.rows.items() if row.kind in (KERNEL, DELEGATE))

    def by_hand(self) -> frozenset[str]:
        """The overloads that only the library tells of."""
        return self.in_library - self.declared()


def read(version: str, python: str) -> Release:
    """What the release registers, read from its wheel for macOS on arm64. Raises WheelError; ConformanceError where sources disagree."""
    with wheels.opened(wheels.find(version, python, r"macosx.*arm64")) as wheel:
        rows = {row.name: row for row in declarations.declared(wheel.read(declarations.MEMBER).decode())}
        in_python = frozenset(in_sources(_sources(wheel)))
        with tempfile.TemporaryDirectory() as folder:
            library = Library(Path(wheel.extract(MEMBER, folder)))
            in_library = frozenset(each.name for each in library.registered())
            library.close()
    release = Release(version, rows, in_library, in_python)
    lost = release.declared() - in_library
    if lost:
        raise ConformanceError(f"torch {version}: the library does not register {', '.join(sorted(lost)[:10])}, which the yaml declares")
    return Release(version, _with_hand_written(release), in_library, in_python)


def _with_hand_written(release: Release) -> dict[str, Declared]:
    """The rows with what is registered by hand laid over them, and what hands on to such an overload after it."""
    letters = dict.fromkeys(release.in_python, PYTHON)
    letters.update((name, STUB if name in _STUBS else FALLBACK) for name in release.by_hand())
    rows = dict(release.rows)
    for name, row in release.rows.items():
        if name in letters:
            rows[name] = Declared(name, letters[name], decomposes=row.decomposes)
        elif row.kind == NONE and letters.get(row.via, STUB) != STUB:  # a structured functional calls its out overload
            rows[name] = Declared(name, letters[row.via], row.via)
    return rows


def _sources(wheel: zipfile.ZipFile) -> Iterator[str]:
    """The Python sources of torch, in the order of the file: neighbours come with one request."""
    members = [info for info in wheel.infolist() if re.fullmatch(r"torch/.*\.py", info.filename)]
    for info in sorted(members, key=lambda info: info.header_offset):
        yield wheel.read(info).decode("utf-8", "replace")


def in_sources(sources: Iterator[str]) -> Iterator[str]:
    """The overloads that Python sources register for MPS."""
    for text in sources:
        made_for_it = set(_LIBRARY.findall(text))
        for library, name, key in _IMPL.findall(text):
            if key or library in made_for_it:
                yield name


def lines(release: Release) -> list[str]:
    """What was read, for a terminal."""
    kinds = {"declared in native_functions.yaml": release.declared(), "registered in Python": release.in_python}
    told = [f"torch {release.version}: {len(release.rows)} overloads, {len(release.in_library)} registered in the library for macOS"]
    told += [f"  {len(names)} {what}" for what, names in kinds.items()]
    return [*told, f"  {len(release.by_hand())} by hand: {', '.join(sorted(release.by_hand()))}"]
