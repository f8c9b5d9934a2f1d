"""Objects passed to compiled code: methods, properties, `super()`, magic methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import Call, call, check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Base:
    """A class that computes."""

    scale = 2

    def __init__(self, n: int) -> None:
        self.n = n
        self.table = {"a": n}

    @property
    def doubled(self) -> int:
        """Twice the number."""
        return self.n * 2

    @classmethod
    def made(cls, n: int) -> Base:
        """By a class method."""
        return cls(n * cls.scale)

    @staticmethod
    def shift(x: Tensor, n: int) -> Tensor:
        """By a static method."""
        return x + n

    def run(self, x: Tensor) -> Tensor:
        """The base's way."""
        return x * self.n

    def __getattr__(self, name: str) -> Any:
        if name.startswith("times_"):
            return self.n * int(name[6:])
        raise AttributeError(name)

    def __getitem__(self, index: int) -> int:
        return self.n + index

    def __len__(self) -> int:
        return self.n

    def __call__(self, x: Tensor) -> Tensor:
        """Called like a function."""
        return x - self.n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Base) and self.n == other.n

    def __hash__(self) -> int:
        return self.n

    def __add__(self, other: Base) -> int:
        return self.n + 10 * other.n


class Derived(Base):
    """A subclass that asks its base."""

    scale = 3

    def run(self, x: Tensor) -> Tensor:
        """The base's way, and more."""
        return super().run(x) + 1


class Holder(list):  # type: ignore[type-arg]
    """A list of its own."""

    def total(self) -> int:
        """The sum."""
        return sum(self)


OBJECTS: dict[str, Code] = {
    "method": lambda x, o: o.run(x),
    "property": lambda x, o: x * o.doubled,
    "class_method": lambda x, o: x * Derived.made(o.n).n,
    "static_method": lambda x, o: o.shift(x, o.n),
    "getattr_magic": lambda x, o: x * o.times_3,
    "getitem": lambda x, o: x * o[2],
    "length": lambda x, o: x * len(o) if o else x,
    "called": lambda x, o: o(x),
    "equal": lambda x, o: x * 2 if o == Derived(2) else x,
    "operator": lambda x, o: x * (o + o),
    "is_instance": lambda x, o: x * o.n if isinstance(o, Base) and hasattr(o, "table") else x,
    "made_inside": lambda x, o: Derived(o.n + 1).run(x),
    "getattr_default": lambda x, o: x * getattr(o, "absent", o.n),
    "own_list": lambda x, o: x * Holder([o.n, 2]).total(),
    "dict_attribute": lambda x, o: x * o.__dict__["n"],
}


@pytest.mark.parametrize("form", OBJECTS)
@catches(replays_first_program, compiled_by=compiling)
def test_object_does_what_it_does(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """Methods, properties, `super()` and magic methods of objects passed in give in compiled code what they give in eager code.

    pytorch/pytorch#176599, pytorch/pytorch#106125; own observation for the others. 2.0 to 2.15; `==` raises on 2.1 to 2.3.
    """
    x = uniform((3,)).to(device)
    inputs: dict[str, Call] = {f"n{n}": call(x, Derived(n)) for n in (2, 3, 5)}
    check_compiled(OBJECTS[form], inputs, observe, compiled_by=compiled_by)
