"""One case while it runs: what it has come to so far, and the record that it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from conformance.incell.judging import Outcome
from conformance.incell.meters import Meter
from conformance.incell.observations import Observations
from conformance.incell.output import TAIL
from conformance.incell.scrub import Scrubber
from conformance.incell.torchstate import TorchState
from conformance.incell.verdicts import Stage, Verdict


class Trial:
    """Collects phases, stage, observations and device counts of one running case."""

    def __init__(self, case: str, seed: int) -> None:
        self.case = case
        self.seed = seed
        self.started_at = datetime.now(timezone.utc)
        self._clock = time.perf_counter()
        self.state = TorchState()
        self.outcomes: list[Outcome] = []
        self.observe = Observations()
        self.meter: Meter | None = None
        self.takes_device = False
        self.stage_reached = Stage.RUN
        #: The latest stage in order that the case has been at: how far a case came that passes.
        self.furthest = Stage.RUN
        #: Told of each stage as it is entered, so that the death of the process can be placed.
        self.tell: Callable[[str, str], None] = lambda stage, work: None
        self.subresults: list[dict[str, Any]] = []

    @contextmanager
    def stage(self, name: str, work: str = "") -> Iterator[None]:
        """The case is at this stage until the block ends; where it raises, the stage stays as it was. `work` says on what it works."""
        before, self.stage_reached = self.stage_reached, Stage(name)
        self.furthest = max(self.furthest, self.stage_reached, key=list(Stage).index)
        self.tell(name, work)
        yield
        self.stage_reached = before
        self.tell(before.value, "")

    def verdict(self) -> Outcome:
        """The worst outcome of all phases, then what the device's counters say of a case that would pass."""
        if self.outcomes:
            return min(self.outcomes, key=lambda outcome: outcome.verdict.severity)
        unexercised = self.meter.unexercised() if self.meter is not None and self.takes_device else ""
        return Outcome(Verdict.UNEXERCISED, unexercised) if unexercised else Outcome(Verdict.PASS, "")

    def record(self, output: str, leaked: list[str], scrub: Scrubber) -> dict[str, Any]:
        """The fields that this process knows of the record; the supervisor adds the rest."""
        outcome = self.verdict()
        tail = "\n".join(part for part in (output.rstrip(), outcome.trace.rstrip()) if part)
        if leaked:
            tail = f"{tail}\nput back after the case: {', '.join(leaked)}".lstrip()
        return {
            "case": self.case,
            "seed": self.seed,
            "verdict": outcome.verdict.value,
            "stage": (self.furthest if outcome.verdict is Verdict.PASS else self.stage_reached).value,
            "reason": outcome.reason and scrub.text(outcome.reason),
            "exception": outcome.exception and scrub.tree(outcome.exception),
            "blame": outcome.blame and scrub.tree(outcome.blame),
            "signal": outcome.signal,
            "output_tail": tail and scrub.text(tail)[-TAIL:],
            "started_at": self.started_at.isoformat(timespec="milliseconds"),
            "duration_s": round(time.perf_counter() - self._clock, 4),
            "device_ops": self.meter.as_record() if self.meter is not None else None,
            "observations": self.observe.values and scrub.tree(self.observe.values),
            "subresults": self.subresults and scrub.tree(self.subresults),
        }
