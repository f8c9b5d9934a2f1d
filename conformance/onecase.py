"""One case on one release after the other: environments made for it go again, what was recorded stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from packaging.version import Version

from conformance import matrix, plan, results
from conformance.config import Config
from conformance.environments import remove
from conformance.environmentspecs import Environment
from conformance.options import Options
from conformance.plan import Selection
from conformance.readings import Reading, of_cell


@dataclass
class OneCase:
    """Measures a case. `config.reports` is a folder of its own, so that the plan and the records of a whole run stay as they are."""

    config: Config
    selection: Selection
    options: Options
    observation: str
    keep: bool
    say: Callable[[str], None]
    #: How many environments had to be made, and seconds spent.
    made: int = 0
    seconds: float = 0.0
    failed: dict[Version, str] = field(default_factory=dict)

    def measure(self, version: Version) -> Reading | None:
        """What the case comes to on a release; None, with the reason in `failed`, where that cannot be known."""
        began = time.monotonic()
        present = {path.name for path in self.config.environments.glob("*")}
        planned = plan.make(self.config, replace(self.selection, torch=str(version)))
        (case,) = self.selection.cases
        done = matrix.measure(self.config, planned, self.options)
        self.failed.update((version, reason) for reason in done.not_installed.values())
        new = [environment for environment in done.environments if environment.path.name not in present]
        self.made += len(new)
        self._let_go(new)
        took = time.monotonic() - began
        self.seconds += took
        reading = self._read(version, case, absent=bool(done.measured) and not done.selected)
        said = reading.value if reading else f"no answer ({self.failed.get(version, '')})"
        self.say(f"{version}: {said}, measured in {took:.0f} s" + (f", {len(new)} environments made" if new else ""))
        return reading

    def _let_go(self, made: list[Environment]) -> None:
        if not self.keep:
            for environment in made:
                remove(environment)

    def _read(self, version: Version, case: str, *, absent: bool) -> Reading | None:
        cells = [cell for cell in results.read(self.config.reports).judged() if cell.cell.version == version]
        if absent and cells:
            return Reading(version, "no such case", cells[0], None)
        for cell in cells:
            reading = of_cell(cell, case, self.observation)
            if reading is not None:
                return reading
            record = cell.outcomes().get(case)
            self.failed.setdefault(version, f"{record['verdict']}: {record['reason']}" if record else "no record came")
        self.failed.setdefault(version, "its cell does not count: controls off, or no answer from the device")
        return None
