"""Whether float32 products may be computed in TF32: a switch that switches on every release, and tells what it did."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LEVELS = {"ieee": "highest", "tf32": "high"}


def float32_precision() -> str:
    """`tf32` or `ieee`: how CUDA multiplies float32 matrices now, as the switch itself says.

    `torch.backends.fp32_precision` says what was written there, on releases until 2.8 too, where nobody reads it.
    """
    try:
        told = torch.backends.cuda.matmul.fp32_precision  # the name's absence is an AssertionError until 2.1
    except (AttributeError, AssertionError):
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return "tf32" if told == "tf32" else "ieee"


def set_float32_precision(precision: str) -> None:
    """Let float32 matrix products and convolutions use TF32 (`tf32`), or not (`ieee`). Raises ValueError for any other word.

    Through the switches that every release has, and that win over what was written before by either interface. The newer one
    (2.9: `torch.backends.fp32_precision`) is an attribute that nobody reads until 2.8, yields to an earlier
    `set_float32_matmul_precision`, and makes `get_float32_matmul_precision` raise once the matmul switch was set by it. A word
    that torch's own switch does not know is ignored there, and until 2.6 the next `torch.library.Library` takes it for its key.
    """
    if precision not in _LEVELS:
        raise ValueError(f"precision {precision!r}: one of {', '.join(_LEVELS)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 2.9 advises the newer interface
        torch.set_float32_matmul_precision(_LEVELS[precision])
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if float32_precision() != precision:
        raise RuntimeError(f"asked for {precision}, and torch {torch.__version__} says {float32_precision()}")


@contextmanager
def at_float32_precision(precision: str) -> Iterator[None]:
    """`set_float32_precision(precision)` inside the block, and what was before it afterwards."""
    products, convolutions = float32_precision(), torch.backends.cudnn.allow_tf32
    set_float32_precision(precision)
    try:
        yield
    finally:
        set_float32_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
