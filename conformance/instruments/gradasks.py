"""Where code asks whether gradients are recorded: the line to blame for a path that is taken in one mode alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from conformance.instruments import callers

_QUESTIONS = ("is_grad_enabled", "is_inference_mode_enabled")


@contextmanager
def asked() -> Iterator[list[dict[str, Any]]]:
    """The lines outside torch that ask by `torch.is_grad_enabled()` or `torch.is_inference_mode_enabled()`, until the block ends.

    Who imported the function itself is not seen.
    """
    found: list[dict[str, Any]] = []
    before = {name: getattr(torch, name) for name in _QUESTIONS}
    for name, original in before.items():
        setattr(torch, name, _noting(original, found))
    try:
        yield found
    finally:
        for name, original in before.items():
            setattr(torch, name, original)


def _noting(original: Callable[[], bool], found: list[dict[str, Any]]) -> Callable[[], bool]:
    @functools.wraps(original)
    def ask() -> bool:
        line = callers.line()
        if any(f"{name}(" in line.get("source", "") for name in _QUESTIONS):  # not `with torch.no_grad()`, which asks on its own
            found.append(line)
        return original()

    return ask
