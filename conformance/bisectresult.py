"""A search for a change: what was asked, what came of it, and the single-file reproduction of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from conformance import plan, reproduction
from conformance.artifacts import write_bytes
from conformance.changesearch import History
from conformance.config import Config, Release
from conformance.globalnames import NotSliceableError
from conformance.onecase import OneCase
from conformance.options import Options
from conformance.plan import Selection
from conformance.readings import Reading
from conformance.subjectspecs import SubjectSpec


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user wants to know. `between` is empty for all releases; its second part may be `nightly`."""

    case: str
    device: str = "cpu"
    observation: str = ""
    between: tuple[str, ...] = ()
    depth: str = ""
    subject: SubjectSpec | None = None
    options: Options = field(default_factory=Options)
    keep_environments: bool = False


@dataclass
class Found:
    """What came of it: the history with the neighbours of the change, what it cost, and the notes that go with it."""

    asked: Asked
    observation: str
    history: History
    costs: OneCase
    stored: int
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 where a change was found, 1 where none was."""
        return 0 if self.history.after is not None else 1

    def lines(self) -> list[str]:
        """The answer for a terminal."""
        before, after = self.history.before, self.history.after
        what = f"observation {self.observation}" if self.observation else "verdict"
        told = [f"{self.asked.case} on {self.asked.device}: {what}"]
        if before is None or after is None:
            told.append("no change among what was measured")
        else:
            told += [f"changes at torch {after.version}, last as before on {before.version}", *before.lines(), *after.lines()]
            if self.history.between:
                told.append(f"no reading from {', '.join(map(str, self.history.between))}: it may have changed there already")
            if before.capability != after.capability:
                told.append(f"beware: measured on different CPU capabilities, {before.capability} and {after.capability}")
        return [*told, "of all releases", *self.history.lines(), *self.notes, self._cost()]

    def _cost(self) -> str:
        measured = len(self.history.measured)
        went = "kept" if self.asked.keep_environments else "dropped again"
        made = f"{self.costs.made} environments made and {went}"
        return f"{measured} measured now in {self.costs.seconds:.0f} s, {made}; {self.stored} known before"


def reproduce(config: Config, found: Found, path: Path | None) -> list[str]:
    """Write the single-file reproduction; returns the lines that tell of it, or why there is none."""
    before, after = found.history.before, found.history.after
    if before is None or after is None:
        return []
    record = after.record or before.record
    case = found.asked.case
    files = {name: file.path for file in plan.case_files(config, Selection()) for name in plan.case_names(file)}
    name = case.partition("[")[0]
    if record is None or name not in files:
        return [f"no reproduction: the file of {name} is not here"]
    path = path or config.reports / "bisect" / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', case).strip('-')}.py"
    releases = found.costs.config.releases
    sides = [_neighbour(reading, releases.get(str(reading.version)), path) for reading in (before, after)]
    reference = found.asked.subject.reference if found.asked.subject else ""
    wanted = reproduction.Wanted(
        case=case,
        file=files[name],
        params=record["params"],
        device=found.asked.device,
        observation=found.observation,
        before=sides[0],
        after=sides[1],
        reference=reference,
    )
    try:
        write_bytes(path, reproduction.script(wanted).encode())
    except NotSliceableError as error:
        return [f"no reproduction in a single file: {error}"]
    return [f"reproduction: {path}", *(f"    {side.command}" for side in sides)]


def _neighbour(reading: Reading, release: Release | None, path: Path) -> reproduction.Neighbour:
    return reproduction.neighbour(
        str(reading.version),
        reading.value,
        reading.evidence,
        python=release.python if release else reading.cell.cell.python,
        packages=release.pins if release else (),
        file=path.name,
        index=release.index_url if release else "",
    )
