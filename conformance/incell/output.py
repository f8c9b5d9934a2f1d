"""What a case prints, on both streams and from C too: kept in a file of the process, so that a crash does not take it along."""

from __future__ import annotations

import os
import sys

#: Characters of output and traceback that a record keeps.
TAIL = 4000


class OutputFile:
    """Takes over file descriptors 1 and 2. `begin` empties the file, `tail` returns its end; what a dead process leaves is the evidence."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._saved: tuple[int, int] | None = None

    def begin(self) -> None:
        """Redirect both streams into the emptied file."""
        _flush()
        self._saved = (os.dup(1), os.dup(2))
        if os.fstat(self._file).st_size:
            os.ftruncate(self._file, 0)
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)

    def end(self) -> str:
        """Give the streams back and return the last characters that were printed since `begin`."""
        _flush()
        if self._saved is not None:
            for number, saved in zip((1, 2), self._saved):
                os.dup2(saved, number)
                os.close(saved)
            self._saved = None
        return tail_of(self._file)


def tail_of(descriptor: int) -> str:
    """The last TAIL characters of an open file, decoded leniently."""
    size = os.fstat(descriptor).st_size
    if not size:
        return ""
    data = os.pread(descriptor, TAIL * 4, max(0, size - TAIL * 4))
    return data.decode("utf-8", "replace")[-TAIL:]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # a case closed or replaced it: nothing to flush there
