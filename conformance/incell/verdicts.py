"""Verdicts and stages: closed enums, the verdicts in order of severity."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(str, Enum):
    """What one case came to in one cell. Members are ordered from the worst for users to the most harmless."""

    WRONG = "wrong"
    CRASH = "crash"
    RAISES = "raises"
    TIMEOUT = "timeout"
    UNEXERCISED = "unexercised"
    ERROR = "error"
    MISSING = "missing"
    PASS = "pass"
    UNSUPPORTED = "unsupported"

    def __str__(self) -> str:
        return self.value

    @property
    def severity(self) -> int:
        """0 for the worst verdict, counting up."""
        return list(Verdict).index(self)

    @property
    def deviates(self) -> bool:
        """Whether the gate asks for an expectation."""
        return self not in (Verdict.PASS, Verdict.UNSUPPORTED)


class Stage(str, Enum):
    """How far a case came."""

    INSTALL = "install"
    COLLECT = "collect"
    IMPORT = "import"
    BUILD = "build"
    CAPTURE = "capture"
    CONVERT = "convert"
    LOWER = "lower"
    COMPILE = "compile"
    RUN = "run"
    COMPARE = "compare"

    def __str__(self) -> str:
        return self.value


def worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The roll-up of several verdicts: the first in order of severity that occurs, None for no verdict at all."""
    return min(verdicts, key=lambda verdict: verdict.severity, default=None)
