"""Why a module answers otherwise when it is asked again: what it draws and at which line, what it writes into or keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.instruments import callers
from conformance.instruments.generalization import difference_of
from conformance.instruments.snapshots import snapshot, state_of

#: So many attributes are named.
_MOST = 5


class _Draws(TorchDispatchMode):
    """The ops that draw, in order: each with the line outside torch that called it. CPU's default stream, or a generator that is passed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = torch.get_rng_state()
        result = func(*args, **kwargs)
        if kwargs.get("generator") is not None or not torch.equal(before, torch.get_rng_state()):
            self.found.append((str(func._schema.name), callers.line()))
        return result


@torch.no_grad()
def why_another(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[str, list[dict[str, Any]]]:
    """Call `model` once more, on the CPU: why its answers are not the same, in words, and the lines that draw."""
    before, given = state_of(model), [snapshot(each) for each in inputs]
    with _Draws() as draws:
        model(*inputs)
    after = state_of(model)
    written = [str(at) for at, each in enumerate(inputs) if difference_of(given[at], snapshot(each))]
    kept = [name.lstrip(".") for name in after if difference_of(before.get(name), after[name])]
    reasons = []
    if draws.found:
        op, line = draws.found[0]
        at = f" at {Path(line['file']).name}:{line['line']}" if line else ""
        reasons.append(f"{op}{at} draws random numbers, though the model was told eval()")
    if written:
        reasons.append(f"it writes into its argument {', '.join(written)}")
    if kept:
        reasons.append(f"it keeps {', '.join(kept[:_MOST])}{' and more' if len(kept) > _MOST else ''} from one call to the next")
    lines = [line for _, line in draws.found if line]
    return "; ".join(reasons) or "it draws outside torch (random, numpy), or keeps something outside itself", lines
