"""Whether this code is being captured: by the compiler, by torch.export, or by the TorchScript tracer."""

from __future__ import annotations

import sys

import torch


def is_compiling() -> bool:
    """True inside torch.compile and torch.export; torch.compiler.is_compiling from 2.1, dynamo's own before.

    `hasattr(torch, "_dynamo")` is no probe: the attribute is there only after somebody imported it.
    """
    compiler = getattr(torch, "compiler", None)
    probe = getattr(compiler, "is_compiling", None)
    if probe is not None:
        return bool(probe())
    dynamo = sys.modules.get("torch._dynamo")
    external = getattr(getattr(dynamo, "external_utils", None), "is_compiling", None) or getattr(dynamo, "is_compiling", None)
    return bool(external()) if external is not None else False


def is_tracing() -> bool:
    """True while torch.jit.trace runs the code."""
    return bool(torch.jit.is_tracing())
