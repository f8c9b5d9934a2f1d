"""What may stand beside a subject and is used by its name: how it is initialised and trained, and how exact it must be."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Name -> the arguments that it is called with, in words.
CALLED_WITH = {"init": ("module",), "loss": ("answer",), "optimizer": ("parameters",)}


class SubjectError(Exception):
    """A reference that gives no subject: what it names, what is wrong with it, what would be right."""


@dataclass(frozen=True)
class Parts:
    """`init(module)` writes every weight, `loss(answer)` gives a scalar, `optimizer(parameters)` a torch optimizer; each may be absent.

    `tolerance` is how far float32 may be from float64, relative to the largest number.
    """

    init: Callable[..., Any] | None = None
    loss: Callable[..., Any] | None = None
    optimizer: Callable[..., Any] | None = None
    tolerance: float | None = None


def of(beside: Any, reference: str) -> Parts:
    """The parts that stand beside the subject of `reference`. Raises SubjectError for one that cannot be what its name says.

    What cannot be called under a name of CALLED_WITH is no part: a module may import `torch.nn.init`.
    """
    found = {name: getattr(beside, name, None) for name in CALLED_WITH}
    called = {name: part for name, part in found.items() if callable(part)}
    for name, part in called.items():
        _check_call(name, part, reference)
    return Parts(tolerance=_tolerance(getattr(beside, "tolerance", None), reference), **called)


def _check_call(name: str, part: Callable[..., Any], reference: str) -> None:
    wanted = CALLED_WITH[name]
    try:
        inspect.signature(part).bind(*wanted)
    except TypeError as error:
        raise SubjectError(f"{name} beside {reference} is called as {name}({', '.join(wanted)}), and cannot be: {error}") from error
    except ValueError:  # built in, its signature is not told
        return


def _tolerance(given: Any, reference: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1:
        raise SubjectError(f"tolerance beside {reference} is {given!r}: give a number between 0 and 1, as 1e-4")
    return float(given)
