"""Copies of a model that was never asked anything: what is held against one that was."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn


def fresh_copies(build: Callable[[], nn.Module], device: torch.device) -> Callable[[], nn.Module]:
    """A function that gives an unused model in eval mode on `device` at each call: copies of one build, so that they hold equal numbers.

    A model that cannot be copied before it was used is built anew each time.
    """
    unused = build().to(device).eval()
    try:
        copy.deepcopy(unused)
    except Exception:  # whatever the model, or something that it holds, refuses to be copied with
        return lambda: build().to(device).eval()
    return lambda: copy.deepcopy(unused)
