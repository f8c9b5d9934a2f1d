"""What a case may require, detected as a feature wherever that is possible. Each answer is a reason, empty when the need is met."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

_ATTRIBUTE = re.compile(r"torch(\.\w+)+")
DTYPES = ("float64", "float16", "bfloat16", "complex64", "complex128", "int64", "float8_e4m3fn")


def is_package(need: str) -> bool:
    """Whether `need` is a requirement that an installer must provide, rather than something to be looked for in torch."""
    if need in _FEATURES or need in DTYPES or _ATTRIBUTE.fullmatch(need):
        return False
    try:
        return Requirement(need).name.lower() not in ("torch", "python")
    except InvalidRequirement as error:
        raise ValueError(
            f"requires({need!r}): neither a feature ({', '.join((*_FEATURES, *DTYPES))}), a torch attribute nor a package"
        ) from error


def lack(needs: Sequence[str], device: Any) -> str:
    """Why the case cannot run here, or an empty string: the first need that is not met."""
    for need in needs:
        reason = _lack(need, str(device))
        if reason:
            return reason
    return ""


@functools.cache
def _lack(need: str, device: str) -> str:
    if need in _FEATURES:
        return _FEATURES[need]()
    if need in DTYPES:
        return _lacks_dtype(need, device)
    if _ATTRIBUTE.fullmatch(need):
        return _lacks_attribute(need)
    return _lacks_package(need)


def _lacks_attribute(path: str) -> str:
    parts = path.split(".")
    owner: Any = importlib.import_module("torch")
    for depth, name in enumerate(parts[1:], start=2):
        if not hasattr(owner, name):
            try:
                owner = importlib.import_module(".".join(parts[:depth]))
            except ImportError:
                return f"no {path} here: {'.'.join(parts[: depth - 1])} has no {name}"
        else:
            owner = getattr(owner, name)
    return ""


def _lacks_dtype(name: str, device: str) -> str:
    torch = importlib.import_module("torch")
    dtype = getattr(torch, name, None)
    if dtype is None:
        return f"this torch has no dtype {name}"
    try:
        torch.zeros(2, dtype=dtype, device=device)
    except (RuntimeError, TypeError) as error:
        return f"no {name} on {device}: {str(error).splitlines()[0]}"
    return ""


def _lacks_package(need: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    requirement = Requirement(need)
    if requirement.name.lower() == "torch":
        found = importlib.import_module("torch").__version__
    else:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            return f"needs {need}, which is not installed"
    if requirement.specifier.contains(Version(found).public, prereleases=True):
        return ""
    return f"needs {need}, this is {Version(found).public}"


def _lacks_compile() -> str:
    torch = importlib.import_module("torch")
    if not hasattr(torch, "compile"):
        return "this torch has no torch.compile"
    try:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    except RuntimeError as error:
        if "not supported" in str(error) or "not yet supported" in str(error):
            return str(error).splitlines()[0]
        raise
    return ""


def _lacks_export() -> str:
    export = getattr(importlib.import_module("torch"), "export", None)
    return "" if hasattr(export, "export") else "this torch has no torch.export"


_FEATURES: dict[str, Callable[[], str]] = {"compile": _lacks_compile, "export": _lacks_export}
