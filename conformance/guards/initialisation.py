"""Explicit initialisation of modules that were built on the meta device, and a check that nothing was missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

#: Written before the check: a float nobody initialises to, and the largest value of an integer dtype (as torch's own
#: deterministic fill does from 2.1).
_POISON = float("nan")


class UninitialisedError(RuntimeError):
    """Parameters or buffers that the initialisation left as memory happened to be; `names` lists them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"never initialised: {', '.join(names)}")
        self.names = names


def tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of each parameter and each buffer, persistent or not; tied ones once."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def tied(module: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Groups of places (owner, attribute) that hold one and the same parameter, each group of two places or more."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((owner, name))
    return [group for group in places.values() if len(group) > 1]


def keep_ties(module: nn.Module, move: Callable[[nn.Module], object]) -> nn.Module:
    """Do `move(module)`, then let places that shared a parameter share the first one's again; returns `module`."""
    groups = tied(module)
    move(module)
    for (first, attribute), *others in groups:
        for owner, name in others:
            setattr(owner, name, getattr(first, attribute))
    return module


def materialise(module: nn.Module, device: torch.device | str) -> nn.Module:
    """`module.to_empty(device)` that keeps tied parameters tied; returns `module`.

    `to_empty` and `to("meta")` give each name a parameter of its own, on every release from 1.13 (huggingface/accelerate#1204).
    """
    return keep_ties(module, lambda empty: empty.to_empty(device=device))


@torch.no_grad()
def poison(module: nn.Module) -> None:
    """Overwrite every parameter and buffer with what no initialisation leaves behind."""
    for _, tensor in tensors(module):
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(_POISON)
        elif tensor.dtype != torch.bool:
            tensor.fill_(torch.iinfo(tensor.dtype).max)


def uninitialised(module: nn.Module) -> list[str]:
    """Names, sorted, of tensors that still hold any poison; bool tensors cannot tell and are never named."""
    return sorted(name for name, tensor in tensors(module) if _poisoned(tensor))


def _poisoned(tensor: Tensor) -> bool:
    if tensor.is_meta:
        return True
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(torch.isnan(tensor).any())
    return tensor.dtype != torch.bool and bool((tensor == torch.iinfo(tensor.dtype).max).any())


def reset_all(module: nn.Module) -> None:
    """Call `reset_parameters` of every part that has one, else `_reset_parameters`: those inside of a part first, as they are built.

    `nn.MultiheadAttention` and `nn.Transformer` have the private name alone, on every release from 1.13 (pytorch/pytorch#107909), and write
    over what their parts drew. A part that stands in several places is reset once.
    """
    for part in _inside_first(module, set()):
        reset = getattr(part, "reset_parameters", getattr(part, "_reset_parameters", None))
        if callable(reset):
            reset()


def _inside_first(module: nn.Module, seen: set[nn.Module]) -> Iterator[nn.Module]:
    for part in module.children():
        if part not in seen:
            yield from _inside_first(part, seen)
    if module not in seen:
        seen.add(module)
        yield module


def initialise(module: nn.Module, device: torch.device | str, init: Callable[[nn.Module], object] | None = None) -> nn.Module:
    """Materialise a module that was built on meta, initialise it by `init` (default: `reset_all`), and prove that nothing was missed.

    Raises UninitialisedError with the names of what `init` did not write. Draws from the global generator only what `init` draws.
    """
    materialise(module, device)
    poison(module)
    (init or reset_all)(module)
    left = uninitialised(module)
    if left:
        raise UninitialisedError(left)
    return module
