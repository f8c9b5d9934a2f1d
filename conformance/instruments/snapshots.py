"""What a call returned, what it did to its arguments and to its own state, held still so that two runs can be compared later.

A snapshot is made of dicts, lists and cloned tensors that `generalization.difference_of` compares: unlike the values
themselves it tells a list from a tuple, one class from another, and a tensor that requires grad from one that does not.
"""

from __future__ import annotations

import dataclasses
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
#: Named by their class alone: what they hold is code, or is looked at elsewhere.
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, nn.Module)
#: Attributes that every module has, hooks and tables, and one that torch.compile leaves (2.13): no state of the model's own.
OF_MODULES = frozenset(vars(nn.Module())) | {"_is_torch_compile"}


def snapshot(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """`value` as plain data: containers by what they hold in order, objects by their class and attributes."""
    if isinstance(value, Tensor):
        return {"tensor": value.detach().clone(), "requires_grad": value.requires_grad}
    if isinstance(value, _PLAIN):
        return {"value": value}
    if id(value) in seen:
        return {"type": _name(value), "again": True}
    return {"type": _name(value), **_contents(value, seen | {id(value)})}


def _contents(value: Any, seen: frozenset[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(value, Mapping):
        found["items"] = [[snapshot(key, seen), snapshot(held, seen)] for key, held in value.items()]
    elif isinstance(value, (list, tuple, deque)):
        found["items"] = [snapshot(held, seen) for held in value]
    elif isinstance(value, (set, frozenset)):
        found["items"] = sorted(repr(held) for held in value)
    elif hasattr(value, "tolist"):  # a numpy array or scalar
        found.update(dtype=str(getattr(value, "dtype", "")), values=value.tolist())
    if not isinstance(value, _OPAQUE):
        found["fields"] = {name: snapshot(held, seen) for name, held in sorted(getattr(value, "__dict__", {}).items())}
    return found


def _name(value: Any) -> str:
    return type(value).__qualname__


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested containers and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from tensors_of(held)
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from tensors_of(held)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name, None))


def state_of(code: Callable[..., Any]) -> dict[str, Any]:
    """A snapshot of what `code` keeps between calls: tensors with their gradients, and plain attributes; {} for a function."""
    if isinstance(code, nn.Module):
        state = {name: snapshot(tensor) for name, tensor in (*code.named_parameters(), *code.named_buffers())}
        state.update({f"{name}.grad": snapshot(parameter.grad) for name, parameter in code.named_parameters()})
        for path, part in code.named_modules():
            state.update({f"{path}.{name}": snapshot(held) for name, held in vars(part).items() if name not in OF_MODULES})
        return state
    if isinstance(code, types.FunctionType):
        return {}
    return {name: snapshot(held) for name, held in getattr(code, "__dict__", {}).items()}
