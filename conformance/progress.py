"""What a run says while it goes: one living line in a terminal, a line per cell elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TextIO

from conformance.incell.verdicts import Verdict


def counts_text(verdicts: Counter[str]) -> str:
    """`31 pass, 2 wrong, 1 unsupported`, in order of severity with `pass` first."""
    order = [Verdict.PASS.value, *(verdict.value for verdict in Verdict if verdict is not Verdict.PASS)]
    return ", ".join(f"{verdicts[name]} {name}" for name in order if verdicts[name]) or "no case"


def span(seconds: float) -> str:
    """`0:07`, `12:30` or `1:05:00`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Tells which cell runs, how far it is and what is left. Quiet where nobody watches, but for a line per cell."""

    def __init__(self, cells: int, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._living = self._stream.isatty()
        self._cells = cells
        self._number = 0
        self._cell = ""
        self._began = time.monotonic()
        self._cell_began = self._began
        self._shown = ""
        self._shown_at = 0.0

    def begin(self, cell: str) -> None:
        """The next cell begins."""
        self._number += 1
        self._cell = cell
        self._cell_began = time.monotonic()
        self._show("preparing")

    def say(self, line: str) -> None:
        """A line that stays."""
        self._erase()
        print(f"  {line}" if self._cell else line, file=self._stream, flush=True)

    def running(self, done: int, planned: int, verdicts: Counter[str]) -> None:
        """So many of the cell's cases have ended."""
        if time.monotonic() - self._shown_at > 0.2:
            self._show(f"{done}/{planned} cases, {counts_text(verdicts)}{self._left(done, planned)}")

    def end(self, verdicts: Counter[str], note: str = "") -> None:
        """The cell is done."""
        self._erase()
        took = span(time.monotonic() - self._cell_began)
        tail = f" ({note})" if note else ""
        print(f"[{self._number}/{self._cells}] {self._cell}: {counts_text(verdicts)} in {took}{tail}", file=self._stream, flush=True)
        self._cell = ""

    def _left(self, done: int, planned: int) -> str:
        """The time left for all cells, by the rate so far."""
        if not done:
            return ""
        finished = self._number - 1 + done / max(planned, 1)
        elapsed = time.monotonic() - self._began
        return f", about {span(elapsed / finished * (self._cells - finished))} left"

    def _show(self, text: str) -> None:
        if not self._living:
            return
        self._erase()
        self._shown = f"[{self._number}/{self._cells}] {self._cell}: {text}"
        self._shown_at = time.monotonic()
        self._stream.write(self._shown)
        self._stream.flush()

    def _erase(self) -> None:
        if self._living and self._shown:
            self._stream.write("\r\x1b[K")
            self._shown = ""
