"""A program on its way down: its text, the weights that it takes as arguments, and how its inputs go in."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from conformance.instruments.lowering.passes import Complaint


@dataclass(frozen=True)
class Program:
    """A module of the torch dialect with one function `main`: first the `weights`, then the model's inputs; it answers with tensors."""

    #: The text, with locations.
    asm: str
    weights: tuple[torch.Tensor, ...]
    #: `script` or `export`.
    route: str
    #: Ops that the dialect has not.
    unknown: tuple[Complaint, ...] = ()
