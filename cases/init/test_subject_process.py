"""A check of any model's weights from one process to the next: a rank, a restart or a colleague under the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.incell import catches, host, limits, subjects
from conformance.instruments.otherprocess import bits_elsewhere, initial_bits

Code = Callable[..., Any]
Observe = Callable[..., None]


def draw_under_the_seed(subject: Any) -> dict[str, str]:
    """As the subject is built and initialised here."""
    return initial_bits(subject)


def draws_by_a_hash(subject: Any) -> dict[str, str]:
    """The first draw is taken or left by the hash of a string, which each process salts anew."""
    drawn = initial_bits(subject)
    first = next(iter(drawn))
    return {**drawn, first: f"{hash(first)}"}


@host
@limits(timeout_s=300)
@subjects()
@catches(draws_by_a_hash, draw=draw_under_the_seed)
def test_subject_init_is_every_process(draw: Code, subject: Any, observe: Observe, stage: Any) -> None:
    """A subject has the same initial weights under the same seed in another process, whose strings hash otherwise (PYTHONHASHSEED).

    An init that walks over a set of names draws in an order of its own in each process, and no two ranks agree. It costs one process
    that imports torch and builds the model. pytorch/torchtitan#1777 is the kin. Own observation, 2.13 and 2.15.
    """
    with stage("build"):
        there = bits_elsewhere(subject.alias)
    here = draw(subject)
    observe("tensors", len(here))
    if not here:
        pytest.skip("neither a build of its own weights nor an init is known of it")
    other = [name for name in here if here[name] != there.get(name)]
    if not other:
        return
    again = draw(subject)
    steady = [name for name in other if again[name] == here[name]]  # what does not repeat in one process is another check's affair
    assert not steady, f"other numbers under the same seed in another process: {', '.join(steady)}"
