"""Claims against results: what the project's own files say it supports, and what the matrix does not bear out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance import readme
from conformance.cells import Cell
from conformance.compare import spans
from conformance.requirements import classifiers, python_claim, torch_claims
from conformance.support import State, Support, Table

#: Trove classifiers that name a device, by how they begin.
DEVICE_CLASSIFIERS = {"Environment :: GPU :: NVIDIA CUDA": "cuda"}
#: Trove classifiers that name a platform, with how the platform field of cells begins.
PLATFORM_CLASSIFIERS = {
    "Operating System :: MacOS": "macos",
    "Operating System :: POSIX :: Linux": "linux",
    "Operating System :: Microsoft :: Windows": "windows",
}
_PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """A claim that the results do not bear out: where it stands, what it says, and what was measured instead."""

    where: str
    claim: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.claim}: {self.problem}"


@dataclass(frozen=True)
class Claims:
    """All that a project says: releases and devices by file, badge and table, Pythons and platforms by classifier."""

    torch: tuple[readme.Stated, ...]
    devices: Mapping[str, str]
    pythons: Mapping[str, str]
    python_range: SpecifierSet | None
    platforms: Mapping[str, str]

    @property
    def claimed_devices(self) -> tuple[str, ...]:
        """The devices that the project names; the CPU, which everybody has, where it names none."""
        named = [*self.devices, *(stated.device for stated in self.torch if stated.device and not stated.written)]
        return tuple(dict.fromkeys(named)) or ("cpu",)


def read(project: Path) -> Claims:
    """What the project in that folder claims. Raises ConfigError for files that cannot be read."""
    path = readme.path_of(project)
    said = readme.stated(path) if path else []
    required = [readme.Stated(claim.text, claim.specifier, "", claim.where) for claim in torch_claims(project)]
    troves = classifiers(project)
    devices = {device: f"classifier {trove}" for trove in troves for start, device in DEVICE_CLASSIFIERS.items() if trove.startswith(start)}
    devices.update({each.device: f"{each.where} {each.text}" for each in said if each.specifier is None})
    python = python_claim(project)
    return Claims(
        torch=(*required, *(each for each in said if each.specifier is not None)),
        devices=devices,
        pythons={match[1]: trove for trove in troves if (match := _PYTHON.fullmatch(trove))},
        python_range=python.specifier if python else None,
        platforms={name: trove for trove in troves for start, name in PLATFORM_CLASSIFIERS.items() if trove.startswith(start)},
    )


def findings(claims: Claims, found: Table, cells: Sequence[Cell], elsewhere: Mapping[str, str]) -> list[Finding]:
    """Every claim that the results do not bear out, in the order of the files. `cells` are those that were measured."""
    every = [
        *(finding for stated in claims.torch for finding in _releases(stated, claims, found)),
        *_devices(claims, found),
        *_surroundings(claims, cells),
    ]
    return [finding for finding in dict.fromkeys(every) if finding.claim not in elsewhere]


def _releases(stated: readme.Stated, claims: Claims, found: Table) -> Iterator[Finding]:
    """What a range of releases claims and was not found so, device by device and state by state."""
    assert stated.specifier is not None
    for device in (stated.device,) if stated.device else claims.claimed_devices:
        by_release = found.get(device, {})
        claimed = [version for version in by_release if stated.specifier.contains(version, prereleases=True)]
        if not claimed:
            yield Finding(stated.where, stated.text, f"no release that is known here is in that range on {device}")
        failing: dict[State, list[Version]] = defaultdict(list)
        for version in claimed:
            failing[by_release[version].state].append(version)
        for state in (State.BROKEN, State.UNKNOWN):
            if failing[state]:
                where = ", ".join(spans(failing[state], by_release))
                yield Finding(stated.where, stated.text, f"torch {where} on {device} is {state.value}{_why(failing[state], by_release)}")


def _why(versions: Sequence[Version], by_release: Mapping[Version, Support]) -> str:
    """The cases that break it, or why nothing is known, from the newest release."""
    support = by_release[versions[-1]]
    if support.open:
        named = ", ".join(f"{case} {verdict}" for case, verdict in support.open[:_NAMED])
        return f": {named}" + (f" and {len(support.open) - _NAMED} more" if len(support.open) > _NAMED else "")
    return f" ({support.why})" if support.why else ""


def _devices(claims: Claims, found: Table) -> Iterator[Finding]:
    for device, where in claims.devices.items():
        if not any(support.state is State.SUPPORTED for support in found.get(device, {}).values()):
            yield Finding(where, device, f"no release is measured to work on {device}")


def _surroundings(claims: Claims, cells: Sequence[Cell]) -> Iterator[Finding]:
    """Pythons and platforms that no cell was measured with."""
    pythons = sorted({_minor(cell.python) for cell in cells})
    measured = ", ".join(f"3.{minor}" for minor in pythons) or "none"
    for python, trove in claims.pythons.items():
        if _minor(python) not in pythons:
            yield Finding("classifier", trove, f"no cell was measured on Python {python} (measured: {measured})")
    unmeasured = _below(claims.python_range, pythons)
    if unmeasured:
        claim = f"requires-python {claims.python_range}"
        yield Finding("pyproject.toml", claim, f"Python {', '.join(unmeasured)} lies below what was measured ({measured})")
    for platform, trove in claims.platforms.items():
        if not any(cell.platform.startswith(platform) for cell in cells):
            yield Finding("classifier", trove, f"no cell was measured on {platform}")


def _below(claimed: SpecifierSet | None, measured: Sequence[int]) -> list[str]:
    """The Pythons that are claimed and older than any that was measured; newer ones are open, as with torch."""
    if claimed is None:
        return []
    return [f"3.{minor}" for minor in range(min(measured, default=0)) if claimed.contains(f"3.{minor}")]


def _minor(python: str) -> int:
    return int(python.removesuffix("t").partition(".")[2])


def verdict(wrong: Sequence[Finding]) -> str:
    """The last line: how it stands, and what to do."""
    if not wrong:
        return "every claim is borne out"
    many = f"{len(wrong)} claims are" if len(wrong) > 1 else "1 claim is"
    return f"{many} not borne out: measure more (`conformance run --profile full`), or claim less (`conformance claims --write`)"


def table_lines(found: Table, devices: Iterable[str]) -> list[str]:
    """The README's table, the newest release first: `✓` supported, with its known deviations; `✕` broken; a dash for not measured."""
    columns = list(devices)
    releases = sorted({version for device in columns for version in found.get(device, {})}, reverse=True)
    lines = [f"| torch | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for version in releases:
        lines.append(f"| {version} | {' | '.join(_sign(found.get(device, {}).get(version)) for device in columns)} |")
    return lines


def _sign(support: Support | None) -> str:
    if support is None or support.state is State.UNKNOWN:
        return "\N{EN DASH}"
    if support.state is State.BROKEN:
        return f"✕ {len(support.open)} failing"
    return f"✓ {support.known} known" if support.known else "✓"
