"""What compiled code writes into its inputs, and inputs that share memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

BACKENDS = ("eager", "aot_eager")


@contextmanager
def works_on_copies(code: Code, **options: Any) -> Any:
    """What a functional program does when nothing is copied back."""
    yield lambda *inputs: code(*(x.clone() for x in inputs)), Report()


def _writes_both(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


#: Name -> what is done to the inputs.
TO_INPUTS: dict[str, Code] = {
    "in_place": lambda x: x.add_(1) * 2,
    "slice": lambda x: x[1:].zero_().sum() + x,
    "index": lambda x: x.__setitem__(0, 5.0) or x.sum(),
    "copy": lambda x: x.copy_(x.flip(0)) + 0,
    "view": lambda x: x.view(-1).add_(1).sum() + 0,
    "transposed": lambda x: x.t().mul_(2) + 0,
    "returned": lambda x: x.add_(1),
    "twice": lambda x: x.add_(1).mul_(x.sum()) + 0,
    "out": lambda x: torch.add(x, 1, out=x) * 2,
    "data": lambda x: x.data.add_(1) + 0,
    "detached": lambda x: x.detach().add_(1) + 0,
    "dict": lambda x: {"x": x.add_(1)}["x"] * 2,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", TO_INPUTS)
@catches(works_on_copies, compiled_by=compiling)
def test_write_to_input_is_kept(compiled_by: Code, form: str, backend: str, device: torch.device, observe: Observe) -> None:
    """What compiled code writes into its input is in the caller's tensor after the call, and nothing else is.

    pytorch/pytorch#93363; own observation for the others. 2.0 to 2.15.
    """
    x = uniform((2, 3)).to(device)
    check_compiled(TO_INPUTS[form], {"first": (x,), "second": (x + 1,)}, observe, compiled_by=compiled_by, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@catches(works_on_copies, compiled_by=compiling)
def test_aliased_inputs_are_told_apart(compiled_by: Code, backend: str, device: torch.device, observe: Observe) -> None:
    """Code that writes into one input and reads another is right when they share memory, also after a call where they did not.

    pytorch/pytorch#139789, pytorch/pytorch#198095. With the backend eager on 2.0 to 2.15; aot_eager answers the overlap from
    the first program, in silence.
    """
    base, other = uniform((8,)).to(device), uniform((4,), "other").to(device)
    inputs = {"apart": call(base[:4].clone(), other), "same": call(other, other), "overlap": call(base[:4], base[2:6])}
    check_compiled(_writes_both, inputs, observe, compiled_by=compiled_by, backend=backend)
