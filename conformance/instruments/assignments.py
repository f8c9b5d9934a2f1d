"""Where what a module holds was assigned last: the line to blame for a parameter that nobody wrote, a buffer that was replaced, a cache."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from conformance.instruments import callers

#: The ways in which a module gets something under a name: each is called with the module, the name and the value.
_WAYS = ("__setattr__", "register_buffer", "register_parameter")

#: Methods by which a list, dict, set or deque gets something more.
_ADDING = ("append", "appendleft", "extend", "insert", "update", "setdefault", "add")


class Assignments:
    """The lines that assigned tensors, containers and numbers, by module and name."""

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
        """The line that assigned what this dotted name holds last; else one that writes into it, of the owner's source; else empty."""
        path, _, leaf = name.rpartition(".")
        owner = dict(model.named_modules()).get(path)
        return self._lines.get((id(owner), leaf)) or _writing_into(owner, leaf)

    def names(self, model: nn.Module) -> list[str]:
        """Dotted names of what was assigned to parts of `model`, the first of them first."""
        paths = {id(part): path for path, part in model.named_modules()}
        return [f"{paths[part]}.{leaf}".lstrip(".") for part, leaf in self._lines if part in paths]


def _writing_into(owner: nn.Module | None, leaf: str) -> dict[str, Any]:
    """A dict or list that is filled is not assigned: the first line of the class that sets an item of it, or adds one."""
    writes = re.compile(
        rf"\bself\.{re.escape(leaf)}(\[[^=]*\]\s*[-+*/|]?=[^=]|\.(append|extend|insert|update|setdefault|add|appendleft)\()"
    )
    try:
        source, first = inspect.getsourcelines(type(owner))
        file = inspect.getsourcefile(type(owner))
    except (OSError, TypeError):
        return {}
    found = ((first + at, text.strip()) for at, text in enumerate(source) if writes.search(text))
    return next(({"file": file, "line": number, "source": text} for number, text in found), {})


@contextmanager
def assigned() -> Iterator[Assignments]:
    """Note which lines assign to modules what is no module itself, until the block ends."""
    found, before = Assignments(), {way: getattr(nn.Module, way) for way in _WAYS}
    for way, original in before.items():
        setattr(nn.Module, way, _noting(original, found))
    try:
        yield found
    finally:
        for way, original in before.items():
            setattr(nn.Module, way, original)


def _noting(original: Callable[..., None], found: Assignments) -> Callable[..., None]:
    @functools.wraps(original)  # torch 2.6 looks at the signature of register_buffer when a buffer is assigned
    def assign(self: nn.Module, name: str, *given: Any, **named: Any) -> None:
        original(self, name, *given, **named)
        if not any(isinstance(each, nn.Module) for each in given):
            found.note(self, name)

    return assign
