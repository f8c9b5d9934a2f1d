"""Whether this code is being captured: by the compiler, by torch.export, or by the TorchScript tracer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _never() -> bool:
    return False


# Looked up once: until 2.2 dynamo cannot follow `hasattr` or a `getattr` with a default on a module. Asked for in the function,
# the probe would break the graph, run uncaptured, and answer False: the code behind it would never know.
_NATIVE: Any = getattr(getattr(torch, "compiler", None), "is_compiling", None)
_COMPILING: Callable[[], Any] = _NATIVE or getattr(torch._utils, "is_compiling", _never)


def is_compiling() -> bool:
    """True inside torch.compile and torch.export: `torch.compiler.is_compiling` from 2.3, before that what dynamo takes for it.

    `hasattr(torch, "_dynamo")` is no probe: the attribute is there only after somebody imported it.
    """
    return bool(_COMPILING())


def is_tracing() -> bool:
    """True while torch.jit.trace runs the code."""
    return bool(torch.jit.is_tracing())
