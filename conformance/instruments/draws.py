"""Draws from global generators, made the same each time: two builds of a model that draws are equal then."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from conformance.incell.torchstate import seed_all


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Inside, the CPU's global generators of Python, numpy and torch start at `seed`; behind it they go on as if nothing had been drawn."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy is not None and hasattr(numpy, "random") else None
    with torch.random.fork_rng(devices=[]):
        seed_all(seed, "cpu")
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy is not None and states[1] is not None:
                numpy.random.set_state(states[1])
