"""What this torch has: names, keywords, releases. Each question has a wrong way that answers right on the release at hand."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import torch


def find_attribute(path: str) -> Any:
    """The object at a dotted path, as `torch.nn.attention.sdpa_kernel`, submodules imported on the way; None where it is not.

    `hasattr(torch, "nn.attention")` is always False, `hasattr(torch, "_dynamo")` changes with an import, and the import of a
    submodule may fail with more than ImportError.
    """
    first, *rest = path.split(".")
    found: Any = importlib.import_module(first)
    for depth, name in enumerate(rest, start=2):
        if not hasattr(found, name):
            try:
                importlib.import_module(".".join([first, *rest][:depth]))
            except Exception:
                return None
        found = getattr(found, name, None)
        if found is None:
            return None
    return found


def takes_keyword(function: Callable[..., Any], keyword: str, value: Any, *arguments: Any) -> bool:
    """Whether `function(*arguments, keyword=value)` is understood: it is called, and a TypeError says no.

    A builtin's signature cannot be read. Other exceptions pass: they say that the arguments are wrong.
    """
    try:
        function(*arguments, **{keyword: value})
    except TypeError:
        return False
    return True


def release_number(version: str | None = None) -> tuple[int, int]:
    """Major and minor number of a version (default: torch's), comparable as numbers: (2, 10) is after (2, 9).

    Pre-releases and local labels count as their release: `2.9.0a0+git1234` and `2.9.0+cu128` are (2, 9).
    """
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__ if version is None else version))
    if found is None:
        raise ValueError(f"not a version: {version!r}")
    return int(found[1]), int(found[2])
