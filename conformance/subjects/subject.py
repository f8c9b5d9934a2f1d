"""What a subject is: a model under test as a maintainer hands it over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from conformance.guards.initialisation import keep_ties

#: Arguments of a subject's forward, in order.
Inputs = tuple[torch.Tensor, ...]

_Module = TypeVar("_Module", bound=nn.Module)

_ALIAS = re.compile(r"[a-z0-9_]+")

#: One axis of one argument that varies: (position of the argument, axis) -> its name.
Axes = dict[tuple[int, int], str]

#: Bounds of a varying axis, both inclusive.
Bounds = tuple[int, int]


@dataclass(frozen=True)
class Subject:
    """A model under test: its requirements, how to build it, and inputs by named variation.

    `build` gives the module in eval mode on the CPU with weights that need no random stream, so that two releases compute
    on equal numbers. `variations` maps a name to a function that makes that variation's arguments; the first is the one
    to capture with. `axes` names what varies, for torch.export, within `bounds`.
    """

    alias: str
    build: Callable[[], nn.Module]
    variations: dict[str, Callable[[], Inputs]]
    requirements: tuple[str, ...] = ()
    #: Built without numbers, on the meta device, before any initialisation.
    skeleton: Callable[[], nn.Module] | None = None
    #: Writes every parameter and buffer of a materialised skeleton.
    initialise: Callable[[nn.Module], None] | None = None
    #: Tensor names that the skeleton declares tied: pairs of dotted names.
    ties: tuple[tuple[str, str], ...] = ()
    axes: Axes | None = None
    bounds: dict[str, Bounds] | None = None
    #: Another `build`: what is drawn beside the weights (random buffers, permutations) is drawn anew; None: nothing is.
    rebuild: Callable[[], nn.Module] | None = None
    #: The module as its author builds it, with the weights of that build, on a device.
    fresh: Callable[[torch.device], nn.Module] | None = None
    #: Makes arguments of other sizes: axis name -> size.
    resize: Callable[[Mapping[str, int]], Inputs] | None = None
    #: The scalar to train by, of what forward returns; None: the mean square of all that floats in it.
    loss: Callable[[Any], torch.Tensor] | None = None
    #: The optimizer of its parameters; None: AdamW.
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None
    #: How far float32 may be from float64, relative to the largest number; None: what each check allows by itself.
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if not _ALIAS.fullmatch(self.alias):
            raise ValueError(f"alias {self.alias!r}: only a-z, 0-9 and _")
        if not self.variations:
            raise ValueError(f"subject {self.alias!r} has no variation of its inputs")

    def rebuilt(self) -> nn.Module:
        """A module as another process would build it, before it loads a checkpoint."""
        return (self.rebuild or self.build)()

    @property
    def example(self) -> str:
        """The variation to capture with."""
        return next(iter(self.variations))

    def inputs(self, variation: str | None = None, device: str | torch.device = "cpu") -> Inputs:
        """Arguments of `variation` (the example by default) on `device`; raises KeyError that names those there are."""
        name = self.example if variation is None else variation
        if name not in self.variations:
            raise KeyError(f"subject {self.alias!r} has no variation {name!r}: there are {', '.join(self.variations)}")
        return tuple(tensor.to(device) for tensor in self.variations[name]())

    def all_inputs(self, device: str | torch.device = "cpu") -> dict[str, Inputs]:
        """Every variation's arguments, the example first."""
        return {name: self.inputs(name, device) for name in self.variations}

    def sizes(self) -> dict[str, int]:
        """The example's size along each axis that varies."""
        example, found = self.inputs(), {}
        for (position, axis), name in (self.axes or {}).items():
            found.setdefault(name, example[position].size(axis))
        return found

    def dynamic(self) -> tuple[dict[int, str], ...]:
        """What varies, one dict an argument: axis -> name."""
        axes = self.axes or {}
        return tuple({axis: name for (position, axis), name in axes.items() if position == at} for at in range(len(self.inputs())))


def on_meta(factory: Callable[[], _Module]) -> _Module:
    """What `factory` builds, on the meta device, the global random stream left as it was.

    The device is a context from torch 2.0; on 1.13 the module is built with numbers and stripped of them.
    """
    device = torch.device("meta")
    if hasattr(device, "__enter__"):
        with device:
            return factory()
    with torch.random.fork_rng(devices=[]):
        module = factory()
        keep_ties(module, lambda built: built.to(device))
        return module
