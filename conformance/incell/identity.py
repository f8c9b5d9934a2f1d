"""The id of a case: `family.name[param-param]`, whatever file it lives in."""

from __future__ import annotations

import functools
import os
from typing import Any

from conformance.incell.settings import Settings

#: The families of design; a folder of that name under a case root holds the family.
FAMILIES = ("init", "fallbacks", "mps", "rope", "compile", "trace", "lowering", "control", "user")


def family_of(path: str, settings: Settings) -> str:
    """The family of a case file: `user` under a user's root, else the first folder below the case root (or its own folder)."""
    return _family_of(path, tuple(settings.user_roots), tuple(settings.case_roots))


@functools.cache
def _family_of(path: str, user_roots: tuple[str, ...], case_roots: tuple[str, ...]) -> str:
    real = os.path.realpath(path)
    if any(_inside(real, root) for root in user_roots):
        return "user"
    for root in case_roots:
        if _inside(real, root):
            first, _, rest = os.path.relpath(real, os.path.realpath(root)).partition(os.sep)
            return first if rest else "user"
    return os.path.basename(os.path.dirname(real))


def stem_of(path: str) -> str:
    """The name of a case file without `test_` and its extension."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem[len("test_") :] if stem.startswith("test_") else stem


def file_case(path: str, settings: Settings) -> str:
    """The id that stands for a whole file where its cases are not known: `family.<file stem>`."""
    return f"{family_of(path, settings)}.{stem_of(path)}"


def case_id(item: Any, settings: Settings) -> str:
    """The id of a collected item; under twins the twin's name follows a tilde."""
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    name = name[len("test_") :] if name.startswith("test_") else name
    if item.cls is not None:
        name = ".".join([*(part.removeprefix("Test") or part for part in item.cls.__qualname__.split(".")), name])
    twin = getattr(item, "conformance_twin", None)
    return f"{family_of(str(item.path), settings)}.{name}{_brackets(item, twin)}" + (f"~{twin}" if twin else "")


def params_of(item: Any) -> dict[str, str]:
    """The parameters of a collected item as text, by argument name; idioms are no parameters."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    idioms = {name for mark in item.iter_markers("catches") for name in mark.kwargs}
    return {name: _readable(value) for name, value in callspec.params.items() if name not in idioms}


def _brackets(item: Any, twin: str | None) -> str:
    """The parameters' ids in brackets, as pytest names them, without the twin's: it is always the last."""
    inner = item.name.partition("[")[2].removesuffix("]")
    if twin:
        inner = "" if inner == twin else inner.removesuffix(f"-{twin}")
    return f"[{inner}]" if inner else ""


def _readable(value: Any) -> str:
    alias = getattr(value, "alias", None)
    if isinstance(alias, str):
        return alias
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return str(value)[:200].replace("torch.", "")


def _inside(real: str, root: str) -> bool:
    """Whether a resolved path lies below a root, or is the root, where that is a single file."""
    base = os.path.realpath(root).rstrip(os.sep)
    return real == base or real.startswith(base + os.sep)
