"""What torch's transforms look into: registered containers, standard ones, DTensor's home."""

from __future__ import annotations

import collections
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

from conformance.guards import dtensor, register_pytree, release_number
from conformance.incell import catches, host

pytestmark = host

Register = Callable[..., None]


class Pair:
    """Two values."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


def flatten(pair: Any) -> tuple[list[Any], None]:
    """Its children, and no context."""
    return [pair.first, pair.second], None


def _check_registered(register: Register) -> None:
    kind = type("Own", (Pair,), {})  # a new class each time: a registration cannot be undone
    register(kind, flatten, lambda children, context: kind(*children))
    leaves, spec = pytree.tree_flatten(kind(1, [2, 3]))
    assert leaves == [1, 2, 3]
    again = pytree.tree_unflatten([10, 20, 30], spec)
    assert type(again) is kind
    assert (again.first, again.second) == (10, [20, 30])


def registers_nothing(kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> None:
    """The name is missing, so it is left out: the container is a leaf, and what it holds stays where it was."""


def registers_the_base(kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> None:
    """A subclass is another class: it stays a leaf."""
    register_pytree(kind.__mro__[1], flatten, lambda children, context: Pair(*children))


@catches(registers_nothing, registers_the_base, register=register_pytree)
def test_registered_container(register: Register) -> None:
    """A container that was registered flattens to its leaves and comes back as itself.

    huggingface/transformers#31385. 1.13 to 2.15.
    """
    _check_registered(register)


@pytest.mark.parametrize("name", ["register_pytree_node", "_register_pytree_node"])
def test_registered_container_native(name: str) -> None:
    """Each of torch's names for registration registers, without a warning.

    huggingface/transformers#31385. The public name came in 2.2; the private one warns since.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _check_registered(getattr(pytree, name))


def registers_again(kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> None:
    """The later registration is meant to win."""
    pytree.SUPPORTED_NODES.pop(kind, None)
    register_pytree(kind, flatten, unflatten)


@catches(registers_again, register=register_pytree)
def test_second_registration_changes_nothing(register: Register) -> None:
    """A class that is registered twice, as by two libraries, keeps its first registration.

    Observed here: torch's own raises ValueError since 2.2 and replaces the first until 2.1. 1.13 to 2.15.
    """
    kind = type("Own", (Pair,), {})
    register(kind, flatten, lambda children, context: kind(*children))
    register(kind, lambda pair: ([pair.first], None), lambda children, context: kind(children[0], None))
    assert pytree.tree_flatten(kind(1, 2))[0] == [1, 2]


Point = collections.namedtuple("Point", "x y")
CONTAINERS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"b": 1, "a": [2]},
    "ordered_dict": lambda: collections.OrderedDict(b=1, a=2),
    "named_tuple": lambda: Point(1, (2,)),
    "defaultdict": lambda: collections.defaultdict(list, a=1, b=2),
    "deque": lambda: collections.deque([1, 2]),
    "size": lambda: torch.Size([1, 2]),
}


@pytest.mark.parametrize("kind", list(CONTAINERS))
def test_standard_container_native(kind: str) -> None:
    """Containers of the standard library, and torch.Size, are looked into: their two leaves are found.

    Observed here: torch.Size is a leaf until 1.13, defaultdict and deque until 2.1.
    """
    assert sorted(pytree.tree_flatten(CONTAINERS[kind]())[0]) == [1, 2]


def _distributed() -> None:
    if not torch.distributed.is_available():
        pytest.skip("this build has no torch.distributed")


def takes_the_package(found: object = torch.distributed) -> Any:
    """`hasattr(torch.distributed, "tensor")`: a package by that name, with or without the class."""
    return found


@catches(takes_the_package, look=dtensor)
def test_home_of_dtensor(look: Callable[[], Any], observe: Callable[..., None]) -> None:
    """DTensor is found where this release keeps it: a subclass of Tensor, or None on the release that has none.

    huggingface/transformers#38639, huggingface/transformers#47480; moved by pytorch/pytorch#133113 in 2.5. 1.13 to 2.15.
    """
    _distributed()
    found = look()
    observe("module", getattr(found, "__module__", "none"))
    assert found is None or (isinstance(found, type) and issubclass(found, torch.Tensor) and found.__name__ == "DTensor")


def _gated_by_two() -> Any:
    """The gate that many a library had: 2.0 has the package, without the class."""
    return importlib.import_module("torch.distributed.tensor").DTensor if release_number() >= (2, 0) else None


HOMES: dict[str, Callable[[], Any]] = {
    "new": lambda: importlib.import_module("torch.distributed.tensor").DTensor,
    "old": lambda: importlib.import_module("torch.distributed._tensor").DTensor,
    "gate_2_0": _gated_by_two,
}


@pytest.mark.parametrize("home", list(HOMES))
def test_home_of_dtensor_native(home: str) -> None:
    """DTensor is found by one path alone, or by the gate "from 2.0 on".

    huggingface/transformers#38639. The new path holds since 2.5, the old one from 2.0 to 2.15, the gate since 2.5 and on 1.13.
    """
    _distributed()
    found = HOMES[home]()
    assert found is None or issubclass(found, torch.Tensor)
