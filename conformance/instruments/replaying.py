"""The mistake that guards exist to prevent: a program recorded once and replayed whatever changed. The wrong twin of many cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as tree

from conformance.instruments.compilation import Report


@contextmanager
def replays_first_program(code: Callable[..., Any], **options: Any) -> Iterator[tuple[Callable[..., Any], Report]]:
    """Record the tensor operations of the first call and replay them on the tensors of every other; nothing else is looked at.

    Takes the place of `compilation.compiling`. Where nothing can be recorded, the first answer is given for ever.
    """
    programs: list[Callable[..., Any]] = []

    def replay(*arguments: Any, **named: Any) -> Any:
        leaves, form = tree.tree_flatten((arguments, named))
        if not programs:
            programs.append(_recorded(code, leaves, form))
        return programs[0](*_tensors(leaves))

    yield replay, Report(graphs=1)


def _tensors(leaves: list[Any]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _recorded(code: Callable[..., Any], leaves: list[Any], form: Any) -> Callable[..., Any]:
    from torch.fx.experimental.proxy_tensor import make_fx

    def on_tensors(*tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        arguments, named = tree.tree_unflatten([next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], form)
        return code(*arguments, **named)

    try:
        program: Callable[..., Any] = make_fx(on_tensors)(*(tensor.detach().clone() for tensor in _tensors(leaves)))
    except Exception:
        answer = on_tensors(*_tensors(leaves))
        return lambda *tensors: answer
    return program
