"""Objects that are one object: what is written by one name must be read by the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]


class Held:
    """An object with a number."""

    def __init__(self) -> None:
        self.number = 0


def _objects() -> tuple[Any, Any]:
    return Held(), Held()


def _modules() -> tuple[Any, Any]:
    first, second = nn.Identity(), nn.Identity()
    first.number = second.number = 0  # type: ignore[assignment]
    return first, second


PAIRS: dict[str, Callable[[], tuple[Any, Any]]] = {"objects": _objects, "modules": _modules}


def write_outside(code: Code) -> Code:
    """Compiled code is given numbers; what is written is written in eager code."""

    def run(x: Tensor, first: Any, second: Any) -> Tensor:
        first.number = 1
        second.number = 2
        result: Tensor = code(x, first.number)
        return result

    return run


def writes_inside(code: Code) -> Code:
    """Compiled code writes by two names, which it took for two objects when it was compiled."""

    def both(x: Tensor, first: Any, second: Any) -> Tensor:
        first.number = 1
        second.number = 2
        return x * first.number

    return torch.compile(both, backend="eager")


@pytest.mark.parametrize("pair", PAIRS)
@catches(writes_inside, arrange=write_outside)
def test_one_object_by_two_names(arrange: Callable[[Code], Code], pair: str, device: torch.device) -> None:
    """An object that is given twice, after a call in which two were given, is written once: the later number is read by both names.

    pytorch/pytorch#196173. Compiled code that writes by itself answers for two objects, in silence, on 2.1 to 2.15.
    """
    x = torch.ones(2, device=device)
    with compiling(lambda x, number: x * number) as (compiled, _):
        run = arrange(compiled)
        first, second = PAIRS[pair]()
        assert run(x, first, second).tolist() == [1.0, 1.0]
        assert run(x, first, first).tolist() == [2.0, 2.0]
        assert first.number == 2
