"""Where a process was when it crashed or was told to show it: faulthandler writes every thread's stack from C, whoever holds the GIL.

The supervisor keeps the time limits. It sends SIGUSR1 before it ends a process that is late, and reads the stacks from the file.
"""

from __future__ import annotations

import faulthandler
import signal


def keep_stacks(path: str) -> None:
    """From now on a crash, and SIGUSR1, leave the stacks of all threads in `path`."""
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - faulthandler writes to it for as long as the process lives
    faulthandler.enable(file)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=False)
    _OPEN.append(file)


#: faulthandler keeps the descriptor's number, so the file must stay open.
_OPEN: list[object] = []
