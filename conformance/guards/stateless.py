"""A module called with parameters that are not its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def functional_call(module: nn.Module, state: Mapping[str, Tensor], arguments: tuple[Any, ...], named: dict[str, Any] | None = None) -> Any:
    """`module(*arguments, **named)` with `state` in place of parameters and buffers; a tied one goes to all its places.

    `torch.func.functional_call` from 2.0. `torch.nn.utils.stateless.functional_call` of 1.13 replaces the name that it is given
    and leaves the tied places as they were; from 2.0 it warns.
    """
    func = getattr(torch, "func", None)
    if func is not None:
        return func.functional_call(module, dict(state), arguments, named)
    from torch.nn.utils import stateless

    given = {_tensor(module, name): tensor for name, tensor in state.items()}
    everywhere = {name: given[held] for name, held in _names(module) if held in given}
    return stateless.functional_call(module, {**state, **everywhere}, arguments, named or {})


def _tensor(module: nn.Module, name: str) -> Tensor:
    owner, _, leaf = name.rpartition(".")
    found: Tensor = getattr(module.get_submodule(owner), leaf)
    return found


def _names(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Each name of each parameter and buffer, tied ones as often as they are named."""
    found = []
    for prefix, part in module.named_modules(remove_duplicate=False):
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                found.append((f"{prefix}.{name}" if prefix else name, tensor))
    return found
