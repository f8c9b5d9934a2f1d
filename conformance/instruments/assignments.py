"""Where a module's tensors were assigned last: the line to blame for a parameter that nobody wrote, or a buffer that was replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from conformance.instruments import callers

#: The ways in which a module gets a tensor under a name: each is called with the module, the name and the tensor.
_WAYS = ("__setattr__", "register_buffer", "register_parameter")


class Assignments:
    """The lines that assigned tensors, by module and name."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str], dict[str, Any]] = {}
        self._held: list[nn.Module] = []  # an id is one module's as long as it lives

    def note(self, module: nn.Module, name: str) -> None:
        """The caller's line is the last to assign `name`."""
        found = callers.line()
        if found:
            self._lines[id(module), name] = found
            self._held.append(module)

    def line(self, model: nn.Module, name: str) -> dict[str, Any]:
        """The line that assigned the tensor of this dotted name last; empty where none was seen."""
        path, _, leaf = name.rpartition(".")
        owner = dict(model.named_modules()).get(path)
        return self._lines.get((id(owner), leaf), {})


@contextmanager
def assigned() -> Iterator[Assignments]:
    """Note which lines assign tensors to modules, until the block ends."""
    found, before = Assignments(), {way: getattr(nn.Module, way) for way in _WAYS}
    for way, original in before.items():
        setattr(nn.Module, way, _noting(original, found))
    try:
        yield found
    finally:
        for way, original in before.items():
            setattr(nn.Module, way, original)


def _noting(original: Callable[..., None], found: Assignments) -> Callable[..., None]:
    @functools.wraps(original)  # torch 2.5 and 2.6 look at the signature of register_buffer when a buffer is assigned
    def assign(self: nn.Module, name: str, *given: Any, **named: Any) -> None:
        original(self, name, *given, **named)
        if any(isinstance(each, Tensor) for each in (*given, *named.values())):
            found.note(self, name)

    return assign
