"""Errors that end a command: each class has an exit code of its own, and a message that says what, where and what to do."""

from __future__ import annotations


class ConformanceError(Exception):
    """Base of all errors that a user can mend; `exit_code` is what the command returns."""

    exit_code = 2


class ConfigError(ConformanceError):
    """The configuration, an argument or a file that the command was given is wrong."""

    exit_code = 2


class BusyError(ConformanceError):
    """Another run holds the folder of results."""

    exit_code = 2


class NothingSelectedError(ConformanceError):
    """The selection is valid and leaves no cell or case."""

    exit_code = 3


class NoEnvironmentError(ConformanceError):
    """No environment could be made for any cell."""

    exit_code = 4


class InstallError(Exception):
    """One environment could not be made; the cell's records say so and the other cells go on."""


class IncompleteRecordsError(ConformanceError):
    """Planned cases have no record, or two machines disagree about a cell."""

    exit_code = 5


#: The order in which `nox -s matrix` picks its exit code when several apply.
EXIT_ORDER = (2, 3, 4, 5, 1, 0)


def first_exit_code(*codes: int) -> int:
    """The code that a command with several stages returns: the first of 2, 3, 4, 5, 1 that occurred, else 0."""
    return min(codes, key=EXIT_ORDER.index, default=0)
