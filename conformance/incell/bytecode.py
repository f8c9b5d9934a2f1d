"""Bytecode of installed packages: a process leaves it for those that follow, which import torch in half the time.

uv compiles nothing, and Python is told to write none: the code of cases and of models changes while it is worked on.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import py_compile
import sys


def leave() -> None:
    """Compile what this process has imported from its environment, where that was not done before."""
    root = os.path.join(sys.prefix, "")
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if isinstance(source, str) and source.startswith(root) and source.endswith(".py"):
            compiled = importlib.util.cache_from_source(source)
            if not os.path.exists(compiled):
                with contextlib.suppress(OSError, py_compile.PyCompileError):
                    py_compile.compile(source, cfile=compiled, doraise=True)
