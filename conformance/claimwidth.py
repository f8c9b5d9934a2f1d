"""Where a project claims more of torch and Python than a check of its models bears out, and where it claims less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from conformance.artifacts import Record
from conformance.compare import UNKNOWN, intervals
from conformance.incell.verdicts import Verdict
from conformance.requirements import Claim, python_claim, torch_claims

#: How loud each verdict is, in words: of a silent one nobody hears while the model runs. The others say nothing of the model.
LOUDNESS = {
    Verdict.WRONG: "silent",
    Verdict.UNEXERCISED: "silent",
    Verdict.RAISES: "loud",
    Verdict.CRASH: "loud",
    Verdict.TIMEOUT: "loud",
}


@dataclass(frozen=True)
class Claimed:
    """What the files of one project claim; empty where they say nothing of torch, None where they say nothing of Python."""

    torch: tuple[Claim, ...]
    python: Claim | None


@dataclass(frozen=True)
class Outcome:
    """How a release did: the worst verdict of what a claim promises, and the checks that do not hold there."""

    verdict: Verdict | None
    faults: tuple[Record, ...] = ()


def claimed(project: Path) -> Claimed:
    """What the project in that folder claims. Raises ConfigError for files that cannot be read."""
    return Claimed(tuple(torch_claims(project)), python_claim(project))


def lines(made: Claimed, outcomes: Mapping[Version, Outcome], pythons: Mapping[Version, str]) -> list[str]:
    """Where the claims are too wide (a release that is claimed fails, in silence or loudly) and where they are too narrow.

    `pythons` has the Python that each release was measured on.
    """
    told = [line for claim in made.torch for line in _of_claim(claim, outcomes)]
    if not made.torch:
        told.append("  nothing of torch: it may be installed beside any release")
    if made.python is not None:
        told += _of_python(made.python, pythons)
    return told


def _of_claim(claim: Claim, outcomes: Mapping[Version, Outcome]) -> Iterator[str]:
    told = _told(claim)
    known = {version: each for version, each in outcomes.items() if each.verdict is not None and each.verdict not in UNKNOWN}
    claimed = {version for version in known if claim.claims(str(version))}
    failing = sorted(version for version in claimed if known[version].verdict is not Verdict.PASS)
    beyond = sorted(version for version in known if version not in claimed and known[version].verdict is Verdict.PASS)
    if not failing and not beyond:
        yield f"  {told}: holds on every measured release" if claimed else f"  {told}: no release of it was measured"
    for version in failing:
        yield f"  {told}: too wide, {version} fails {_how(known[version].faults)}"
    if beyond:
        yield f"  {told}: too narrow, {', '.join(map(str, beyond))} would do as well"
    honest = intervals({version: each.verdict for version, each in outcomes.items()})
    if failing and honest not in ("none", "unknown"):
        yield f"      what was measured bears out torch{honest.replace(' ', '')}"


def _told(claim: Claim) -> str:
    """The range, and the list that holds it; that of the pyproject's own table by its bare name."""
    where = claim.where.removeprefix("pyproject.toml [project] ")
    return f"torch{claim.specifier} ({where})" if str(claim.specifier) else f"torch of any release ({where})"


def _how(faults: Sequence[Record]) -> str:
    """Loudly or in silence, and the check that says so; the silent one where there are both."""
    silent = [record for record in faults if LOUDNESS[Verdict(record["verdict"])] == "silent"]
    first = (silent or list(faults))[0]
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{'in silence' if silent else 'loudly'} ({first['case'].partition('[')[0].replace('.subject_', '.')}{more})"


def _of_python(python: Claim, pythons: Mapping[Version, str]) -> Iterator[str]:
    left = sorted(version for version, used in pythons.items() if not python.claims(used))
    if left:
        used = ", ".join(dict.fromkeys(pythons[version] for version in left))
        yield f"  requires-python {python.text}: leaves out Python {used}, which torch {', '.join(map(str, left))} was planned with"
