"""What a project declares of torch and Python in its pyproject, held against the releases that were measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from conformance.artifacts import Record
from conformance.compare import UNKNOWN, intervals
from conformance.incell.verdicts import Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Verdicts that nobody hears of while the model runs.
_SILENT = (Verdict.WRONG, Verdict.UNEXERCISED)


@dataclass(frozen=True)
class Claim:
    """One requirement on torch: the specifier, and the list of the pyproject that holds it."""

    torch: SpecifierSet
    where: str

    def __str__(self) -> str:
        return f"torch{self.torch} ({self.where})" if str(self.torch) else f"torch of any release ({self.where})"


@dataclass(frozen=True)
class Declared:
    """The claims of one project; empty where it has no pyproject or says nothing."""

    claims: tuple[Claim, ...] = ()
    python: SpecifierSet | None = None


@dataclass(frozen=True)
class Standing:
    """How a release did: the worst verdict of what a claim promises, and the checks that do not hold there."""

    verdict: Verdict | None
    faults: tuple[Record, ...] = ()


def read(project: Path) -> Declared:
    """What the pyproject of that folder declares: dependencies, optional ones, requires-python. What is no requirement is passed over."""
    path = project / "pyproject.toml"
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    lists = {"dependencies": table.get("dependencies", [])}
    lists.update({f"optional-dependencies.{name}": wanted for name, wanted in table.get("optional-dependencies", {}).items()})
    claims = [Claim(found.specifier, where) for where, wanted in lists.items() for found in _on_torch(wanted)]
    try:
        python = SpecifierSet(table["requires-python"]) if "requires-python" in table else None
    except InvalidSpecifier:
        python = None
    return Declared(tuple(claims), python)


def _on_torch(wanted: Sequence[str]) -> Iterator[Requirement]:
    for text in wanted:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.name.lower() == "torch":
            yield requirement


def lines(declared: Declared, standings: Mapping[Version, Standing], pythons: Mapping[Version, str]) -> list[str]:
    """Where the claims are too wide (a release that is claimed fails, in silence or loudly) and where they are too narrow.

    `pythons` has the Python that each release was measured on.
    """
    told = [line for claim in declared.claims for line in _of_claim(claim, standings)]
    if not declared.claims:
        told.append("  nothing of torch: it may be installed beside any release")
    if declared.python is not None:
        told += _of_python(declared.python, pythons)
    return told


def _of_claim(claim: Claim, standings: Mapping[Version, Standing]) -> Iterator[str]:
    known = {version: each for version, each in standings.items() if each.verdict is not None and each.verdict not in UNKNOWN}
    claimed = {version for version in known if claim.torch.contains(version, prereleases=True)}
    failing = sorted(version for version in claimed if known[version].verdict is not Verdict.PASS)
    beyond = sorted(version for version in known if version not in claimed and known[version].verdict is Verdict.PASS)
    if not failing and not beyond:
        yield f"  {claim}: holds on every measured release" if claimed else f"  {claim}: no release of it was measured"
    for version in failing:
        yield f"  {claim}: too wide, {version} fails {_how(known[version].faults)}"
    if beyond:
        yield f"  {claim}: too narrow, {', '.join(map(str, beyond))} would do as well"
    honest = intervals({version: each.verdict for version, each in standings.items()})
    if failing and honest not in ("none", "unknown"):
        yield f"      what was measured bears out torch{honest.replace(' ', '')}"


def _how(faults: Sequence[Record]) -> str:
    """Loudly or in silence, and the check that says so; the silent one where there are both."""
    silent = [record for record in faults if Verdict(record["verdict"]) in _SILENT]
    first = (silent or list(faults))[0]
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{'in silence' if silent else 'loudly'} ({first['case'].partition('[')[0].replace('.subject_', '.')}{more})"


def _of_python(python: SpecifierSet, pythons: Mapping[Version, str]) -> Iterator[str]:
    left = sorted(version for version, used in pythons.items() if not python.contains(used, prereleases=True))
    if left:
        used = ", ".join(dict.fromkeys(pythons[version] for version in left))
        yield f"  requires-python {python}: leaves out Python {used}, which torch {', '.join(map(str, left))} was planned with"
