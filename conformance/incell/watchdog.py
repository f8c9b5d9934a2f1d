"""The watchdog of a case: faulthandler's C thread ends a hang whatever holds the interpreter, and leaves every thread's stack."""

from __future__ import annotations

import faulthandler


class Watchdog:
    """Writes the stacks into `path` and ends the process when a case outlasts its limit; a crash leaves its stack there too."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - faulthandler needs it open for as long as the process lives
        faulthandler.enable(self._file)

    def arm(self, timeout_s: float) -> None:
        """Give the running case `timeout_s` seconds from now."""
        faulthandler.dump_traceback_later(timeout_s, exit=True, file=self._file)

    def disarm(self) -> None:
        """The case ended in time."""
        faulthandler.cancel_dump_traceback_later()
