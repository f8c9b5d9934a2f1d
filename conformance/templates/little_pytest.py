"""The little of pytest that cases use, for a script that has no pytest."""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import Any


class SkippedError(Exception):
    """The case cannot run here."""


class _Close:
    """A number, or several, and how far another may be from it."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self.expected, self.rel, self.abs = expected, rel, abs

    def __eq__(self, other: Any) -> bool:
        if isinstance(self.expected, (list, tuple)):
            pairs = zip(self.expected, other)
            return len(self.expected) == len(other) and all(_Close(one, self.rel, self.abs) == two for one, two in pairs)
        relative = 1e-6 if self.rel is None and self.abs is None else self.rel or 0.0
        absolute = 1e-12 if self.abs is None and self.rel is None else self.abs or 0.0
        return bool(other == self.expected or abs(other - self.expected) <= max(relative * abs(self.expected), absolute))

    __hash__ = None  # type: ignore[assignment]


@contextlib.contextmanager
def _raises(expected: Any, match: str = "") -> Any:
    caught: Any = type("Caught", (), {"value": None, "type": None})()
    try:
        yield caught
    except expected as error:
        caught.value, caught.type = error, type(error)
        if match and not re.search(match, str(error)):
            raise AssertionError(f"{error!r} does not match {match!r}") from error
        return
    raise AssertionError(f"did not raise {expected}")


def _skip(reason: str = "") -> None:
    raise SkippedError(reason)


def _fail(reason: str = "") -> None:
    raise AssertionError(reason)


def _importorskip(name: str, *unused: Any, **also: Any) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SkippedError(str(error)) from error


class pytest:  # noqa: N801
    """What a case calls by that name."""

    approx, raises, skip, fail, importorskip = _Close, staticmethod(_raises), staticmethod(_skip), staticmethod(_fail), _importorskip
