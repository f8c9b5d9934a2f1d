"""Where a process was when it crashed or was told to show it: faulthandler writes every thread's stack from C, whoever holds the GIL.

The supervisor keeps the time limits. It ends a process that is late by SIGUSR1, which leaves the stacks, and reads them from the file.
"""

from __future__ import annotations

import faulthandler
import signal


def keep_stacks(path: str) -> None:
    """From now on a crash leaves the stacks of all threads in `path`, and SIGUSR1 ends the process after it left them.

    The signal's default action is chained, so that a late case cannot go on because the signal interrupted its sleep.
    """
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - faulthandler writes to it for as long as the process lives
    faulthandler.enable(file)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=True)
    _OPEN.append(file)


#: faulthandler keeps the descriptor's number, so the file must stay open.
_OPEN: list[object] = []
