"""Expectations: known deviations, kept outside the cases, each with its reason, its link and the day to look at it again."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.errors import ConfigError
from conformance.incell.verdicts import Verdict
from conformance.selectors import matches

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KEYS = ("case", "torch", "device", "verdict", "reason", "link", "review", "observation", "varies")
REQUIRED = ("case", "verdict", "reason", "link", "review")
_BOUND_KEYS = ("name", "bound", "better")
_NO_REASON = re.compile(r"\W*(todo|tbd|fixme|xxx|unknown|n/?a|none|reason|why|\?+|\.+|-+)?\W*", re.IGNORECASE)


@dataclass(frozen=True)
class Bound:
    """How far an observed number may go: `lower` is better means at most `bound`, `higher` at least."""

    name: str
    bound: float
    better: str

    def holds(self, value: float) -> bool:
        """Whether `value` is no worse than the bound."""
        return value <= self.bound if self.better == "lower" else value >= self.bound

    def value(self, record: Record) -> float | None:
        """The number that `record` observed under this name, None when it did not."""
        observed = record["observations"].get(self.name)
        value = observed.get("value") if isinstance(observed, dict) else None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number or value in ("inf", "-inf", "nan") else None  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One entry: on these releases and devices the case comes to this verdict, or its number stays within this bound."""

    case: str
    verdict: Verdict
    reason: str
    link: str
    review: date
    torch: SpecifierSet = field(default_factory=SpecifierSet)
    device: str = "*"
    observation: Bound | None = None
    #: What it comes and goes with beside release and device, as the build: such an entry is not stale where its case passes.
    varies: str = ""
    number: int = 0

    def in_range(self, cell: Cell) -> bool:
        """Whether the cell's release and device are among those that the entry speaks of."""
        return matches(self.device, cell.device) and self.torch.contains(cell.version, prereleases=True)

    def in_scope(self, record: Record) -> bool:
        """Whether the entry speaks of this record's case, release and device."""
        return matches(self.case, record["case"]) and self.in_range(Cell.parse(record["cell"]))

    def covers(self, record: Record) -> bool:
        """Whether the record is what the entry says: in scope, of its verdict and, where it has a bound, within it."""
        return record["verdict"] == self.verdict.value and self.in_scope(record) and self.within_bound(record)

    def within_bound(self, record: Record) -> bool:
        """Whether the record's number is no worse than the bound; true without a bound, false when the number is not there."""
        if self.observation is None:
            return True
        value = self.observation.value(record)
        return value is not None and self.observation.holds(value)

    def __str__(self) -> str:
        where = f"torch {self.torch}" if str(self.torch) else "every torch"
        bound = f", {self.observation.name} bound {self.observation.bound:g}" if self.observation else ""
        return f"entry {self.number}: {self.case} is {self.verdict} on {where}, device {self.device}{bound}"


def load(path: Path) -> list[Expectation]:
    """The entries of an expectations file, in its order; raises one ConfigError that names every mistake in it."""
    return parse(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of an expectations file with its line ends as they are; raises ConfigError when it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the expectations cannot be read ({error.strerror}): correct `expectations` in the config") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the file is not UTF-8 (byte {error.start}): save it as UTF-8") from error


def parse(text: str, source: str) -> list[Expectation]:
    """The entries in `text`; `source` names the file in the ConfigError that tells all mistakes."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is no TOML: {error}") from error
    mistakes = [f"key {key!r} is unknown{_perhaps(key, ('expectation',))}" for key in table if key != "expectation"]
    listed = table.get("expectation", [])
    if not isinstance(listed, list):
        mistakes.append("'expectation' must be written as [[expectation]]")
        listed = []
    found: list[Expectation] = []
    for number, entry in enumerate(listed, 1):
        told = _mistakes(entry) if isinstance(entry, dict) else ["must be a table"]
        mistakes += [f"entry {number}{_named(entry)}: {one}" for one in told]
        if not told:
            found.append(_expectation(entry, number))
    if mistakes:
        raise ConfigError("\n  ".join([f"{source} has {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}:", *mistakes]))
    return found


def _expectation(entry: Mapping[str, Any], number: int) -> Expectation:
    bound = entry.get("observation")
    return Expectation(
        case=entry["case"],
        verdict=Verdict(entry["verdict"]),
        reason=entry["reason"].strip(),
        link=entry["link"],
        review=entry["review"],
        torch=SpecifierSet(entry.get("torch", "")),
        device=entry.get("device", "*"),
        observation=Bound(bound["name"], float(bound["bound"]), bound["better"]) if bound else None,
        varies=entry.get("varies", "").strip(),
        number=number,
    )


def _mistakes(entry: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with one entry, each with the key and what to write."""
    told = [f"key {key!r} is unknown{_perhaps(key, KEYS)}" for key in entry if key not in KEYS]
    told += [f"key {key!r} is missing" for key in REQUIRED if key not in entry]
    for key in ("case", "torch", "device", "verdict", "reason", "link", "varies"):
        if key in entry and not isinstance(entry[key], str):
            told.append(f"{key} = {entry[key]!r} must be text")
    checks = {"case": _case, "torch": _torch, "device": _case, "verdict": _verdict, "reason": reason_mistake, "link": link_mistake}
    checks["varies"] = reason_mistake
    for key, check in checks.items():
        if isinstance(entry.get(key), str):
            told += [f"{key} = {entry[key]!r} {wrong}" for wrong in [check(entry[key])] if wrong]
    review = entry.get("review")
    if review is not None and (not isinstance(review, date) or isinstance(review, datetime)):
        told.append(f"review = {review!r} must be a bare date, as 2027-03-01")
    return told + (_bound(entry["observation"]) if "observation" in entry else _needs_bound(entry))


def _case(text: str) -> str:
    return "" if text.strip() == text != "" else "is empty or has blanks around it"


def _torch(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return "is no version specifier, as >=2.4,<2.9"
    return ""


def _verdict(text: str) -> str:
    known = [verdict.value for verdict in Verdict if verdict is not Verdict.UNSUPPORTED]
    if text == Verdict.UNSUPPORTED.value:
        return "never needs an expectation: the gate does not ask for one"
    return "" if text in known else f"is no verdict{_perhaps(text, known)}"


def reason_mistake(text: str) -> str:
    """What is wrong with a reason; empty when it says something."""
    return "says nothing: write why torch behaves so" if _NO_REASON.fullmatch(text) else ""


def link_mistake(text: str) -> str:
    """What is wrong with a link; empty for an https address."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "is no address"
    return "" if parts.scheme == "https" and parts.hostname and not re.search(r"[\s\x00-\x1f]", text) else "must be an https:// address"


def _needs_bound(entry: Mapping[str, Any]) -> list[str]:
    return ["verdict = 'pass' needs an observation with a bound"] if entry.get("verdict") == Verdict.PASS.value else []


def _bound(bound: Any) -> list[str]:
    if not isinstance(bound, dict):
        return ['observation must be written as {name = "graph_breaks", bound = 3, better = "lower"}']
    told = [f"observation key {key!r} is unknown{_perhaps(key, _BOUND_KEYS)}" for key in bound if key not in _BOUND_KEYS]
    told += [f"observation key {key!r} is missing" for key in _BOUND_KEYS if key not in bound]
    if not isinstance(bound.get("name", ""), str):
        told.append(f"observation name = {bound['name']!r} must be text")
    number = bound.get("bound", 0)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != number:
        told.append(f"observation bound = {number!r} must be a number")
    if bound.get("better", "lower") not in ("lower", "higher"):
        told.append(f"observation better = {bound['better']!r} must be 'lower' or 'higher'")
    return told


def _named(entry: Any) -> str:
    case = entry.get("case") if isinstance(entry, dict) else None
    return f" ({case})" if isinstance(case, str) else ""


def _perhaps(word: str, known: tuple[str, ...] | list[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f": perhaps you meant {close[0]!r}" if close else f"; known: {', '.join(known)}"
