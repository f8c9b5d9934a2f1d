"""The files of one process in the cell: what it journals of each case, what the case printed, and where it was when it died."""

from __future__ import annotations

import os

from conformance.incell.journal import Journal
from conformance.incell.output import OutputFile
from conformance.incell.scrub import Scrubber, private_names, process_roots
from conformance.incell.settings import Settings
from conformance.incell.stacks import keep_stacks
from conformance.incell.trial import Trial


class Recorder:
    """The files of one process: journal, output and traces. `finish` turns a trial into the journal's `end`."""

    def __init__(self, settings: Settings) -> None:
        self._pid = os.getpid()
        self.journal = Journal(settings.journal)
        self.output = OutputFile(self.journal.stem + ".output")
        keep_stacks(self.journal.stem + ".trace")
        roots = {**process_roots(), **settings.roots}
        self.scrub = Scrubber(roots, [*private_names(), *settings.secrets])
        self.journal.event("process", pid=os.getpid(), worker=os.environ.get("PYTEST_XDIST_WORKER", ""))

    def begin(self, case: str, timeout_s: float) -> None:
        """From here on what happens to the process is this case's doing."""
        self.journal.start(case, timeout_s)
        self.output.begin()

    def stage(self, stage: str, work: str) -> None:
        """The case is at this stage now, working on that."""
        self.journal.event("stage", stage=stage, work=self.scrub.text(work))

    def finish(self, trial: Trial) -> None:
        """The case ended by itself: put the process back and write the record.

        A child that the case forked comes here too, with all that this process has: it ends, and its parent tells.
        """
        if os.getpid() != self._pid:
            os._exit(0)
        leaked = trial.state.restore()
        self.journal.event("end", record=trial.record(self.output.end(), leaked, self.scrub))
