"""Subjects: models under test, each with its requirements, how to build it, and inputs that vary.

A subject is found by its alias: `get("gpt")` imports `conformance.subjects.gpt` and returns its `SUBJECT`, so that
naming a subject costs nothing until it is used. A user's own is known by the reference that it was registered with.
"""

from __future__ import annotations

import functools
import importlib

from conformance.incell.registered import REGISTERED, register
from conformance.subjects.subject import Inputs, Subject

#: Alias -> the module that holds `SUBJECT`.
MODULES = {
    "gpt": "conformance.subjects.gpt",
    "opt": "conformance.subjects.opt",
}

__all__ = ["MODULES", "Inputs", "Subject", "aliases", "get", "register"]


def aliases() -> tuple[str, ...]:
    """Aliases of all known subjects, sorted."""
    return tuple(sorted({*MODULES, *REGISTERED}))


@functools.cache
def get(alias: str) -> Subject:
    """The subject called `alias`; raises KeyError that names those there are."""
    if alias in REGISTERED:
        from conformance.subjects.references import load

        return load(alias, REGISTERED[alias])
    if alias not in MODULES:
        raise KeyError(f"no subject {alias!r}: there are {', '.join(aliases())}")
    found = importlib.import_module(MODULES[alias]).SUBJECT
    if not isinstance(found, Subject) or found.alias != alias:
        raise TypeError(f"{MODULES[alias]}.SUBJECT is not the subject {alias!r}")
    return found
