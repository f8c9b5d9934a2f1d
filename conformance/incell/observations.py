"""Observations: named values that a case measures, in a form that compares between cells."""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
from typing import Any

#: How many characters of a text are kept.
KEPT_CHARACTERS = 4000
#: How many of a tensor's elements are kept, so that cells compare by closeness too.
KEPT_VALUES = 64


class ObservationError(Exception):
    """A value could not be observed: the harness's limit, not torch's fault."""


class Observations:
    """What the fixture `observe` collects for one case."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}

    def __call__(self, name: str, value: Any, *, better: str | None = None) -> None:
        """Record `value` (a tensor, number, text or truth value) as `name`; `better` says which direction is an improvement."""
        if better not in (None, "lower", "higher"):
            raise ObservationError(f"better={better!r}: 'lower', 'higher' or None")
        if name in self.values:
            raise ObservationError(f"observation {name!r} was made twice in one case")
        try:
            self.values[name] = _described(value, better)
        except Exception as error:
            raise ObservationError(f"{name!r} cannot be observed: {type(error).__name__}: {error}") from error


def _described(value: Any, better: str | None) -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if isinstance(value, bool):
        return {"kind": "text", "value": str(value)}
    if isinstance(value, (int, float)):
        return {"kind": "number", "value": value if math.isfinite(value) else str(value), "better": better}
    return {"kind": "text", "value": str(value)[:KEPT_CHARACTERS]}


def describe_tensor(tensor: Any) -> dict[str, Any]:
    """Digest of the bits (None where a tensor holds none, as on meta), dtype, shape, stride and the first elements as numbers."""
    described: dict[str, Any] = {
        "kind": "tensor",
        "dtype": str(tensor.dtype).replace("torch.", ""),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "digest": None,
        "values": [],
    }
    if tensor.device.type == "meta":
        return described
    here = tensor.detach().cpu().contiguous()
    described["digest"] = hashlib.sha256(_bits(here)).hexdigest()[:16]
    described["values"] = [_plain(element) for element in here.flatten()[:KEPT_VALUES].tolist()]
    return described


def _bits(tensor: Any) -> bytes:
    """The elements' bytes; read through the address, since numpy may be absent and knows no bfloat16."""
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""


def _plain(element: Any) -> Any:
    if isinstance(element, complex):
        return [element.real, element.imag]
    if isinstance(element, float) and not math.isfinite(element):
        return str(element)
    return element
