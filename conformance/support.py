"""What the results bear of each release on each device: supported, broken, or not measured, and the honest range that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance.compare import UNKNOWN, intervals
from conformance.config import Config
from conformance.coverage import covering, regressed
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.results import CellResult, ResultSet


class State(str, Enum):
    """What can be said of a release on a device; the worst first."""

    BROKEN = "broken"
    UNKNOWN = "not measured"
    SUPPORTED = "supported"


@dataclass(frozen=True)
class Support:
    """One release on one device. `known` counts the deviations that expectations cover, `open` names those that none does."""

    state: State
    passed: int = 0
    known: int = 0
    open: tuple[tuple[str, str], ...] = ()
    why: str = ""


#: Device -> release -> what the results bear.
Table = Mapping[str, Mapping[Version, Support]]
#: What `bounds` says where there is no range.
NO_RANGE = ("none", "unknown")
NOT_MEASURED = Support(State.UNKNOWN, why="no results")


def table(result: ResultSet, expectations: Sequence[Expectation], config: Config, releases: Iterable[str] = ()) -> Table:
    """Every release that a device is planned for (of `releases`, where they are given), and every other one that was measured."""
    chosen = set(releases) or set(config.releases)
    found: dict[str, dict[Version, Support]] = {}
    for target in config.targets:
        planned = found.setdefault(target.device, {})
        within = SpecifierSet(target.releases, prereleases=True)
        planned.update({Version(release): NOT_MEASURED for release in config.releases if release in chosen and within.contains(release)})
    cells: dict[tuple[str, Version], list[Support]] = {}
    for each in result.cells:
        if each.cell.torch in chosen or each.cell.torch not in config.releases:
            cells.setdefault((each.cell.device, each.cell.version), []).append(_of_cell(each, result, expectations))
    for (device, version), supports in cells.items():
        found.setdefault(device, {})[version] = _rolled_up(supports)
    return {device: dict(sorted(by_release.items())) for device, by_release in found.items()}


def _of_cell(cell: CellResult, result: ResultSet, expectations: Sequence[Expectation]) -> Support:
    why = _not_judged(cell, result)
    if why:
        return Support(State.UNKNOWN, why=why)
    verdicts: Counter[str] = Counter()
    open_, lost = [], 0
    for case, record in cell.outcomes().items():
        verdict = Verdict(record["verdict"])
        if regressed(record, expectations) is not None:
            open_.append((case, "regression"))
        elif not verdict.deviates:
            verdicts[verdict.value] += 1
        elif covering(record, expectations) is not None:
            verdicts["known"] += 1
        elif verdict in UNKNOWN:
            lost += 1
        else:
            open_.append((case, verdict.value))
    passed, known = verdicts[Verdict.PASS.value], verdicts["known"]
    if open_:
        return Support(State.BROKEN, passed, known, tuple(open_))
    if lost or not passed + known:
        return Support(State.UNKNOWN, passed, known, why=f"{lost} cases came to no verdict" if lost else "no case ran")
    return Support(State.SUPPORTED, passed, known)


def _not_judged(cell: CellResult, result: ResultSet) -> str:
    """Why a cell bears nothing; empty where it does."""
    if str(cell.cell) in result.conflicts:
        return "machines disagree"
    if cell.grey:
        return "its device did not answer the probe"
    if cell.controls_off:
        return "its controls are off"
    return "" if cell.collected.get("complete", True) else "only some of its cases were run"


def _rolled_up(supports: Sequence[Support]) -> Support:
    """Several cells of one release and device: one that is broken breaks it, one that is supported supports it."""
    order = (State.BROKEN, State.SUPPORTED, State.UNKNOWN)
    return min(supports, key=lambda support: order.index(support.state))


def bounds(found: Table, devices: Iterable[str]) -> str:
    """The honest specifier: the releases that every one of `devices` supports; "none" or "unknown" where there is no such release."""
    verdicts: dict[Version, Verdict | None] = {}
    for device in devices:
        for version, support in found.get(device, {}).items():
            verdicts[version] = _worse(verdicts.get(version, Verdict.PASS), support.state)
    return intervals(verdicts)


def _worse(so_far: Verdict | None, state: State) -> Verdict | None:
    if state is State.BROKEN or so_far is Verdict.WRONG:
        return Verdict.WRONG
    return None if state is State.UNKNOWN else so_far
