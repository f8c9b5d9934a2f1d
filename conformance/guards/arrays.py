"""Tensors to numpy arrays and back, with numpy 2 beside a torch that was built for numpy 1 too."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_NUMPY_HAS = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")


def to_numpy(tensor: torch.Tensor) -> Any:
    """A numpy array of `tensor`'s numbers that shares no memory with it: detached, on the host, conjugation resolved.

    A dtype that numpy lacks becomes float32. torch until 2.2 beside numpy 2 says "Numpy is not available"
    (pytorch/pytorch#107302): there the bytes are copied.
    """
    import numpy

    here = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(here.dtype).replace("torch.", "")
    if name not in _NUMPY_HAS:
        here, name = here.float(), "float32"
    try:
        return here.numpy().copy()
    except RuntimeError:
        here = here.contiguous()
        size = here.numel() * here.element_size()
        held = ctypes.string_at(here.data_ptr(), size) if size else b""
        return numpy.frombuffer(held, dtype=name).reshape(tuple(here.shape)).copy()


def from_numpy(array: Any) -> torch.Tensor:
    """A tensor of `array`'s numbers that shares no memory with it, whatever the array's strides, byte order and flags."""
    import numpy

    own = numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    try:
        return torch.from_numpy(own)
    except RuntimeError:
        if not own.size:
            return torch.empty(own.shape, dtype=getattr(torch, own.dtype.name), device="cpu")
        return torch.frombuffer(bytearray(own.tobytes()), dtype=getattr(torch, own.dtype.name)).reshape(own.shape)
