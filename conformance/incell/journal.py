"""The journal: what a process in the cell says first-hand, one JSON object a line, written at once.

Each process appends to a file of its own, so that a death costs at most its last line. The supervisor reads the files of a
launch together. Events: `process` (pid, worker); `file`, `file-end`, `case`, `left-out`, `collected` (collection); `start`,
`phase`, `stage`, `end` (a case); `exit` (a worker's exit code, told by the process that started it).
"""

from __future__ import annotations

import os
from json import JSONEncoder
from time import time
from typing import Any

#: Bound when the process starts: a case may patch json and time, and its own end must still be told.
_encode = JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=str).encode
_now = time


class Journal:
    """Appends events to `<folder>/<pid>.jsonl`. `start` and `phase` are on the path of every case, so they are formatted by hand."""

    def __init__(self, folder: str) -> None:
        self.stem = os.path.join(folder, f"{os.getpid()}")
        self._file = os.open(self.stem + ".jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def event(self, event: str, **fields: Any) -> None:
        """Write one event with its fields."""
        os.write(self._file, _encode({"event": event, **fields}).encode("ascii") + b"\n")

    def start(self, case: str, timeout_s: float) -> None:
        """A case begins: if no `end` follows, it is the culprit of what happened to the process."""
        os.write(self._file, b'{"event":"start","case":%s,"at":%.3f,"timeout_s":%.1f}\n' % (_ascii(case), _now(), timeout_s))

    def phase(self, phase: str) -> None:
        """The running case enters `call` or `teardown`."""
        os.write(self._file, b'{"event":"phase","phase":"%s"}\n' % phase.encode("ascii"))


def _ascii(text: str) -> bytes:
    return _encode(text).encode("ascii")
