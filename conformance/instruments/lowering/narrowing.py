"""Unsound code found without a run: where torch-mlir's lowering of `view` takes an open size for 1.

`view` of `[?,?,64]` as `[n,64]` is lowered to a cast of `tensor<?x?x64>` to `tensor<?x1x64>`: whatever the second axis holds, the program
reads it as 1, and answers wrongly or beyond its memory (llvm/torch-mlir#4743, #3852). The cast stands right after the value that torch
gave, which is how it is told from those that later passes make.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.instruments.lowering.blame import Frame
from conformance.instruments.lowering.dialect import context
from conformance.instruments.lowering.passes import Complaint, Passes

#: To linalg op by op, so that a cast still stands where it was made.
SINGLE_OPS = "func.func(convert-torch-to-tmtensor,canonicalize,convert-torch-to-linalg)"
#: What a cast of a value of torch's own comes from.
_SOURCES = ("torch_c.to_builtin_tensor", "tensor.cast")


def narrowings(passes: Passes, asm: str) -> list[Complaint]:
    """Each cast in the lowering of `asm` (torch dialect, backend form) that takes an open size for 1, with the line it comes from.

    Raises LoweringError where an op of it does not lower.
    """
    from torch_mlir import ir

    lowered = passes.run(asm, SINGLE_OPS, "the lowering to linalg of single ops", "-mlir-print-op-generic")
    with context() as known:
        known.allow_unregistered_dialects = True  # the bindings do not know torch_c
        module = ir.Module.parse(lowered)
        return [_complaint(op) for op in _casts(module.operation) if _narrows(op)]


def _casts(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for op in block:
                if op.operation.name == "tensor.cast":
                    yield op.operation
                yield from _casts(op.operation)


def _narrows(cast: Any) -> bool:
    """Whether a cast makes 1 of an open size of a value that comes straight from torch."""
    source = cast.operands[0]
    if str(getattr(source.owner, "name", "")) not in _SOURCES:
        return False
    before, after = source.type, cast.results[0].type
    return any(
        before.is_dynamic_dim(axis) and not after.is_dynamic_dim(axis) and after.get_dim_size(axis) == 1 for axis in range(before.rank)
    )


def _complaint(cast: Any) -> Complaint:
    types = f"{cast.operands[0].type} to {cast.results[0].type}"
    return Complaint("an open size is taken for 1 (unsound)", "torch.aten.view", types, tuple(frames_of(cast.location)))


def frames_of(location: Any) -> Iterator[Frame]:
    """The Python stack that a location holds, the innermost frame first."""
    if hasattr(location, "callee"):
        yield from frames_of(location.callee)
        yield from frames_of(location.caller)
    elif hasattr(location, "locations"):
        for each in location.locations:
            yield from frames_of(each)
    elif hasattr(location, "child_loc"):
        yield from frames_of(location.child_loc)
    elif hasattr(location, "filename"):
        yield (str(location.filename), int(location.start_line), "")
