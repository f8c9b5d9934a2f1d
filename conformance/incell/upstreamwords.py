"""The words in which PyTorch's own lists of MPS are told, in the cell and outside."""

from __future__ import annotations

#: Those that upstream tests on MPS; float64 is none of them.
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64")
PHASES = ("forward", "backward")
#: `differs`: listed for another reason than that it is not there. The first letters differ.
WORDS = ("pass", "unsupported", "differs", "skip")
