"""Which newer APIs of torch code calls while it runs, each with the first line outside torch that does.

Seen by Python's profiling hook, which no kernel and no dispatch notices: functions, constructors, methods, and newer keywords of what is
written in Python. Not seen are attributes that are only read, as a dtype, and the keywords of functions written in C.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from conformance.incell import newerapis

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
#: What watches is not what is watched.
_WATCHING = tuple(f"{Path(__file__).parent.parent / folder}{os.sep}" for folder in ("incell", "instruments"))


class Touches:
    """What was touched so far: `sites` maps a name to `file:line: source`. APIs of modules that are not loaded are not known to it."""

    def __init__(self) -> None:
        self.sites: dict[str, str] = {}
        #: By code, or by the id of what is written in C: the API's name.
        self._codes: dict[CodeType, str] = {}
        self._builtins: dict[int, str] = {}
        #: Name -> keyword -> its default, of those that are newer.
        self._keywords: dict[str, dict[str, Any]] = {}
        self._outside: dict[CodeType, bool] = {}
        for name, api in _apis():
            self._know(name, api)

    def _know(self, name: str, api: Any) -> None:
        function = vars(api).get("__init__") if isinstance(api, type) else inspect.unwrap(api) if inspect.isroutine(api) else None
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType) and code.co_filename.startswith(_TORCH):  # a module of torch shows what it imported, too
            self._codes[code] = name
            taken = [each for each in inspect.signature(function).parameters.values() if each.default is not each.empty]  # type: ignore[arg-type]
            self._keywords[name] = {each.name: each.default for each in taken if f"{name}({each.name})" in newerapis.names()}
        elif inspect.isbuiltin(api):
            self._builtins[id(api)] = name

    def watch(self, frame: FrameType, event: str, argument: Any) -> None:
        """A call, as sys.setprofile tells of it."""
        if event == "call":
            name = self._codes.get(frame.f_code)
            if name is not None and frame.f_back is not None and self._is_outside(frame.f_back):
                self._note(frame.f_back, name)
                self._note_keywords(frame, frame.f_back, name)
        elif event == "c_call" and self._is_outside(frame):
            self._note(frame, self._builtins.get(id(argument)) or _method(argument))

    def _is_outside(self, frame: FrameType) -> bool:
        code = frame.f_code
        if code not in self._outside:
            file = code.co_filename
            self._outside[code] = not file.startswith((_TORCH, "<", *_WATCHING))
        return self._outside[code]

    def _note(self, frame: FrameType, name: str) -> None:
        if name in newerapis.names() and name not in self.sites:
            file, line = frame.f_code.co_filename, frame.f_lineno
            self.sites[name] = f"{file}:{line}: {linecache.getline(file, line).strip()}"

    def _note_keywords(self, frame: FrameType, caller: FrameType, name: str) -> None:
        for keyword, default in self._keywords[name].items():
            if frame.f_locals.get(keyword, default) is not default:
                self._note(caller, f"{name}({keyword})")


def _method(function: Any) -> str:
    """The name of a tensor's method, empty for what is none."""
    return f"torch.Tensor.{function.__name__}" if isinstance(getattr(function, "__self__", None), torch.Tensor) else ""


def _apis() -> Iterator[tuple[str, Any]]:
    """What newer names stand for, each thing once: by the name nearest to where it is defined, not at all where it has an older one."""
    old = {id(_found(name)) for name in newerapis.older() if "(" not in name}
    taking = {name.partition("(")[0] for name in newerapis.names() if "(" in name}
    named: dict[int, tuple[str, Any]] = {}
    for name in sorted(newerapis.names() | taking):
        api = _found(name) if "(" not in name else None
        if api is None or (id(api) in old and name not in taking):
            continue
        if id(api) not in named or _near(name, api) > _near(named[id(api)][0], api):
            named[id(api)] = (name, api)
    yield from named.values()


def _near(name: str, api: Any) -> int:
    """How much of a name is the name of the module that defines the thing."""
    defined = f"{getattr(api, '__module__', '')}.{getattr(api, '__qualname__', '')}"
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(name, defined))))


def _found(name: str) -> Any:
    """What a dotted name stands for, None where it is not there or not loaded: nothing is imported for it."""
    parts = name.split(".")
    owner: Any = None
    for end in range(len(parts), 0, -1):
        owner = sys.modules.get(".".join(parts[:end]))
        if owner is not None:
            break
    for part in parts[end:]:
        owner = inspect.getattr_static(owner, part, None)
    return owner.__func__ if isinstance(owner, (staticmethod, classmethod)) else owner


@contextmanager
def recording() -> Iterator[Touches]:
    """Watch what this thread calls until the block ends."""
    found, before = Touches(), sys.getprofile()
    sys.setprofile(found.watch)
    try:
        yield found
    finally:
        sys.setprofile(before)
