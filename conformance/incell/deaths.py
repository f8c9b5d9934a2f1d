"""The death of a process that a case started: what the case's record says of it, as if the case's own process had died."""

from __future__ import annotations

from typing import Any

from conformance.incell.verdicts import Verdict


class ChildDeathError(Exception):
    """A process that a case started died (`crash`) or did not end in time (`timeout`).

    `signal` is the signal's name where there was one, `blame` the line of the user's code that was under work where it is known.
    """

    def __init__(self, verdict: Verdict, message: str, signal: str | None = None, blame: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.signal = signal
        self.blame = blame
