"""torch.fx.symbolic_trace of any module: arguments that nobody gives keep their defaults, keyword inputs go by position."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch.fx
from torch import nn

from conformance.subjects.keywords import Named


def symbolic(module: nn.Module, arguments: Sequence[Any]) -> Callable[..., Any]:
    """The program that torch.fx records of `module`, called by position with as many tensors as `arguments`.

    Optional arguments that are not among them are fixed at their defaults: as proxies they would be taken for given.
    """
    if isinstance(module, Named):
        names = module.names
        program = torch.fx.symbolic_trace(module.model, _fixed(module.model, names))
        return lambda *inputs: program(**dict(zip(names, inputs)))
    given = list(inspect.signature(module.forward).parameters)[: len(arguments)]
    traced: Callable[..., Any] = torch.fx.symbolic_trace(module, _fixed(module, given))
    return traced


def _fixed(module: nn.Module, given: Sequence[str]) -> dict[str, Any] | None:
    """The defaults of what is not given, None where everything is: torch.fx treats an empty dict as a choice of its own."""
    parameters = inspect.signature(module.forward).parameters
    return {name: each.default for name, each in parameters.items() if name not in given and each.default is not each.empty} or None
