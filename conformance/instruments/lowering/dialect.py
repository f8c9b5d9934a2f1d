"""The torch dialect as Python writes it: a context, types, locations. Everything here needs the package torch-mlir."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from conformance.instruments.lowering.blame import Frame

#: torch's dtypes as the torch dialect writes them; what is not among them is refused with its name.
ELEMENTS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "si64",
    "int32": "si32",
    "int16": "si16",
    "int8": "si8",
    "uint8": "ui8",
    "bool": "i1",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}


class NotInDialectError(Exception):
    """Something that the torch dialect has no word for, found before a compiler saw it; `blame` is the line of the user's code."""

    def __init__(self, message: str, blame: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.blame = blame


def context() -> Any:
    """A fresh MLIR context that knows the torch dialect, on one thread."""
    from torch_mlir import ir
    from torch_mlir.dialects import torch as torch_dialect

    made = ir.Context()
    made.enable_multithreading(False)
    torch_dialect.register_dialect(made)
    return made


def element(dtype: torch.dtype) -> str:
    """The dialect's word for a dtype. Raises NotInDialectError."""
    name = str(dtype).replace("torch.", "")
    if name not in ELEMENTS:
        raise NotInDialectError(f"the torch dialect has no dtype {name}")
    return ELEMENTS[name]


def value_tensor(tensor: torch.Tensor, varying: Sequence[int] = ()) -> str:
    """The type of a tensor whose axes `varying` are not known: `!torch.vtensor<[?,4],f32>`."""
    sizes = ",".join("?" if axis in varying else str(size) for axis, size in enumerate(tensor.shape))
    return f"!torch.vtensor<[{sizes}],{element(tensor.dtype)}>"


def location(frames: Sequence[Frame], known: Any) -> Any:
    """A location that holds the Python stack `frames`, the innermost first."""
    from torch_mlir import ir

    if not frames:
        return ir.Location.unknown(context=known)
    places = [ir.Location.file(file, line, 0, context=known) for file, line, _ in frames]
    return ir.Location.callsite(places[0], places[1:], context=known) if len(places) > 1 else places[0]
