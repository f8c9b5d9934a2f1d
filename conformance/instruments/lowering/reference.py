"""The reference backend: linalg on tensors to native code by LLVM's JIT, without optimisation, called on arrays.

torch-mlir's wheel holds the passes and the execution engine, and not the backend that its own tests use.

Needs numpy and torch-mlir's bindings alone. It says on its standard output what it is about to do, a line each, so that its death can be
blamed on it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: From linalg on tensors to LLVM, everything slow and plain. Checks at run time come before loops lose their shapes: what leaves the bounds
#: of a buffer ends the program, and names its line.
PIPELINE = ",".join(
    [
        "func.func(refback-generalize-tensor-concat,refback-generalize-tensor-pad)",
        "func.func(tm-tensor-bufferize)",
        "one-shot-bufferize{copy-before-write bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map}",
        "refback-mlprogram-bufferize",
        "inline",
        "func.func(tm-tensor-to-loops,refback-munge-memref-copy,convert-linalg-to-loops,lower-affine)",
        "generate-runtime-verification",
        "convert-scf-to-cf",
        "func.func(refback-expand-ops-for-llvm,arith-expand,convert-math-to-llvm)",
        "convert-math-to-libm",
        "expand-strided-metadata",
        "finalize-memref-to-llvm",
        "lower-affine",
        "func.func(llvm-request-c-wrappers)",
        "convert-to-llvm",
        "reconcile-unrealized-casts",
    ]
)
_NUMBERS = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "i1": np.bool_,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
}


class Descriptor:
    """What MLIR's C interface takes for a buffer of `rank` axes: two pointers, an offset, sizes and strides, each a 64-bit word."""

    def __init__(self, rank: int) -> None:
        self.rank, self.words = rank, 3 + 2 * rank

    def fill(self, array: Any) -> Any:
        """The descriptor of a contiguous array."""
        words = (ctypes.c_int64 * self.words)()
        strides = [stride // array.itemsize for stride in array.strides]
        words[:] = [array.ctypes.data, array.ctypes.data, 0, *array.shape, *strides]
        return words

    def read(self, words: Sequence[int], dtype: Any) -> Any:
        """A copy of the buffer that a filled descriptor tells of."""
        address, offset = words[1], words[2]
        sizes, strides = words[3 : 3 + self.rank], words[3 + self.rank : self.words]
        shape, width = tuple(sizes), np.dtype(dtype).itemsize
        if 0 in shape:
            return np.empty(shape, dtype)
        extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
        memory = (ctypes.c_char * (extent * width)).from_address(address + offset * width)
        flat = np.frombuffer(memory, dtype, count=extent)
        return np.lib.stride_tricks.as_strided(flat, shape, [stride * width for stride in strides]).copy()


class Compiled:
    """A program of linalg on tensors that was compiled and can be called on arrays; `results` are rank and element of each answer."""

    def __init__(self, asm: str, results: Sequence[tuple[int, str]]) -> None:
        from torch_mlir import ir
        from torch_mlir.dialects import torch as torch_dialect  # registers torch-mlir's passes
        from torch_mlir.execution_engine import ExecutionEngine
        from torch_mlir.passmanager import PassManager

        self.results = [(Descriptor(rank), _NUMBERS[word]) for rank, word in results]
        context = ir.Context()
        context.enable_multithreading(False)
        torch_dialect.register_dialect(context)
        with context:
            # the bindings do not know tm_tensor, which a pass that needs it brings along
            PassManager.parse("builtin.module(func.func(tm-tensor-bufferize))").run(ir.Module.parse("module {}").operation)
            module = ir.Module.parse(asm)
            PassManager.parse(f"builtin.module({PIPELINE})").run(module.operation)
            # without optimisation: at level 2 LLVM takes minutes for OPT
            self.engine = ExecutionEngine(module, opt_level=0, shared_libs=[])

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """The answer on `arrays`, each contiguous."""
        given = [Descriptor(array.ndim).fill(array) for array in arrays]
        answer = (ctypes.c_int64 * sum(descriptor.words for descriptor, _ in self.results))()
        pointers = [ctypes.cast(words, ctypes.c_void_p) for words in (answer, *given)]
        packed = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(pointer) for pointer in pointers))
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.raw_lookup("_mlir_ciface_main"))
        function(ctypes.addressof(packed))
        return list(self._read(list(answer)))

    def _read(self, words: list[int]) -> Iterator[Any]:
        for descriptor, dtype in self.results:
            yield descriptor.read(words, dtype)
            words = words[descriptor.words :]


def run(program: str, inputs: str, outputs: str, results: Sequence[tuple[int, str]]) -> None:
    """Compile, then run each variation: `weights.0`, ... are given to all, `<variation>.<argument>` to one."""
    print("compile", flush=True)
    compiled = Compiled(Path(program).read_text(encoding="utf-8"), results)
    given = np.load(inputs)
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in given.files))
    weights = arrays_of(given, "weights")
    answers = {}
    for name in names:
        if name != "weights":
            print(f"run {name}", flush=True)
            for number, answer in enumerate(compiled([*weights, *arrays_of(given, name)])):
                answers[f"{name}.{number}"] = answer
    np.savez(outputs, **answers)


def arrays_of(given: Any, name: str) -> list[Any]:
    """The arrays `<name>.0`, `<name>.1`, ... in order."""
    count = sum(each.rpartition(".")[0] == name for each in given.files)
    return [np.ascontiguousarray(given[f"{name}.{number}"]).reshape(given[f"{name}.{number}"].shape) for number in range(count)]
