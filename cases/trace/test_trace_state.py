"""torch.jit.trace and what else it freezes or moves: mode, device, data, the module itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.guards.masks import causal_mask, padding_mask, positions_like
from conformance.incell import catches, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.capture import device_constants, trace
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.tracing import check_trace
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


#: Ways to make something beside the input: each is written without a word about a device.
FORMS: dict[str, Code] = {
    "positions": lambda x: x + positions_like(x),
    "type_as": lambda x: x + torch.arange(x.size(1)).type_as(x),
    "causal_mask": lambda x: causal_mask(x, 2),
    "padding_mask": lambda x: padding_mask(x[:, 0].abs().long() + 1, 3),
}


def use_as_it_is(made: Tensor, x: Tensor) -> Tensor:
    """Nothing else is made."""
    return made


def adds_zeros_on_device_of_example(made: Tensor, x: Tensor) -> Tensor:
    """Zeros on a device that is read in Python."""
    return made + torch.zeros(1, device=x.device)


@pytest.mark.parametrize("form", FORMS)
@catches(Twin(adds_zeros_on_device_of_example, "raises"), finish=use_as_it_is)
def test_device_follows_input(finish: Code, form: str, device: torch.device, observe: Observe, stage: Any) -> None:
    """A trace made on one device runs on another when positions and masks are made beside the input.

    pytorch/pytorch#31141, pytorch/pytorch#62961, pytorch/pytorch#145995: `device=x.device` is a constant. Loud, 1.13 to 2.15.
    """
    inputs = {"length3": (uniform((2, 3)).to(device),), "length6": (uniform((1, 6)).to(device),)}
    traced = check_trace(lambda x: finish(FORMS[form](x), x), inputs, observe, stage)
    observe("device_constants", ", ".join(device_constants(traced)) or "none")
    assert traced(torch.ones(2, 3, device="meta")).device.type == "meta"


class Dropping(nn.Module):
    """Dropout by the functional form, which reads the mode in Python."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return functional.dropout(x, 0.5, self.training)


def trace_in_eval(module: nn.Module, x: Tensor) -> Any:
    """Trace the mode that is shipped."""
    return trace(module.eval(), (x,)).program


def traces_in_train(module: nn.Module, x: Tensor) -> Any:
    """Trace in training mode and switch afterwards."""
    return trace(module.train(), (x,), check_trace=False).program.eval()


@catches(traces_in_train, capture=trace_in_eval)
def test_mode_is_that_of_the_trace(capture: Code, device: torch.device, observe: Observe) -> None:
    """A program traced in eval mode drops nothing; the mode of the trace is part of the program.

    pytorch/pytorch#71929, pytorch/pytorch#68190: `.eval()` on the traced program is silent and does nothing. 1.13 to 2.15.
    """
    x = torch.ones(64, device=device)
    dropped = int((capture(Dropping(), x)(x) == 0).sum())
    observe("zeros", dropped, better="lower")
    assert dropped == 0


def scale_by_tensor(x: Tensor) -> Tensor:
    """The maximum stays a tensor."""
    return x / x.abs().max()


def scales_by_item(x: Tensor) -> Tensor:
    """The maximum of the example."""
    return x / x.abs().max().item()


@catches(scales_by_item, scale=scale_by_tensor)
def test_value_stays_data(scale: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """What is computed from data follows the data, if it never becomes a Python number.

    pytorch/pytorch#22485: silent. 1.13 to 2.15.
    """
    inputs = {"max2": (torch.tensor([1.0, 2.0], device=device),), "max8": (torch.tensor([1.0, 8.0], device=device),)}
    assert check_trace(scale, inputs, observe, stage).warned == ()


def choose_by_where(x: Tensor) -> Tensor:
    """Both branches, chosen by data."""
    return torch.where(x.sum() > 0, x + 1, x - 1)


def branches_on_data(x: Tensor) -> Tensor:
    """The branch of the example."""
    return x + 1 if x.sum() > 0 else x - 1


@catches(branches_on_data, choose=choose_by_where)
def test_branch_follows_data(choose: Code, device: torch.device, observe: Observe, stage: Any) -> None:
    """A choice by data is made anew on each input when it is written with `where`.

    pytorch/pytorch#163791; karpathy/nanochat's rule: no branch on data. Silent. 1.13 to 2.15.
    """
    inputs = {"positive": (torch.ones(3, device=device),), "negative": (-torch.ones(3, device=device),)}
    assert check_trace(choose, inputs, observe, stage).warned == ()


class Counting(nn.Module):
    """Counts its calls in Python and in a buffer."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        self.calls += 1
        self.steps += 1
        return x + self.steps * 0


def trace_unchecked(module: nn.Module, x: Tensor) -> Any:
    """Run the module once."""
    return trace(module, (x,), check_trace=False)


def traces_with_check(module: nn.Module, x: Tensor) -> Any:
    """The default: the check runs module and program again."""
    return trace(module, (x,))


@catches(traces_with_check, capture=trace_unchecked)
def test_tracing_runs_once(capture: Code, device: torch.device, observe: Observe) -> None:
    """Tracing without its check runs the module once, so that buffers written in place move by one step.

    pytorch/pytorch#113945: with the check 3 calls, and 5 steps. 1.13 to 2.15.
    """
    module, x = Counting().to(device), torch.ones(2, device=device)
    traced = capture(module, x)
    observe("calls", module.calls)
    observe("steps", int(module.steps))
    assert (module.calls, int(module.steps)) == (1, 1)
    traced(x)
    assert int(module.steps) == 2


def trace_once(code: Code, arguments: tuple[Tensor, ...]) -> None:
    """One trace with its check."""
    trace(code, arguments)


def traces_again(code: Code, arguments: tuple[Tensor, ...]) -> None:
    """Trace, and trace once more."""
    trace(code, arguments)
    trace(code, arguments)


@catches(traces_again, capture=trace_once)
def test_example_is_written_once(capture: Code, device: torch.device) -> None:
    """Code that writes into its argument writes the caller's example once, the check included.

    pytorch/pytorch#113945. 1.13 to 2.15.
    """

    def write(x: Tensor, step: Tensor) -> Tensor:
        x += step
        return x * 1

    x = torch.zeros(2, device=device)
    capture(write, (x, torch.ones(2, device=device)))
    assert x.tolist() == [1.0, 1.0]


def check_another_length(code: Code, device: torch.device) -> None:
    """Give the tracer an input of another length to check with."""
    trace(code, (uniform((1, 7)).to(device),), check_inputs=[(uniform((1, 5)).to(device),)])


def checks_the_example(code: Code, device: torch.device) -> None:
    """Check with the length that was traced."""
    trace(code, (uniform((1, 7)).to(device),), check_inputs=[(uniform((1, 7), "other").to(device),)])


@catches(checks_the_example, capture=check_another_length)
def test_check_inputs_find_a_frozen_length(capture: Code, device: torch.device) -> None:
    """The tracer's own `check_inputs` of another length refuse a program that froze its length, and no other.

    pytorch/pytorch#11540, pytorch/pytorch#15319. 1.13 to 2.15.
    """
    capture(lambda x: x + torch.arange(x.size(1), device=x.device), device)
    with pytest.raises(torch.jit.TracingCheckError):
        capture(lambda x: x + torch.arange(int(x.size(1)), device=x.device), device)


def trace_two_inputs(code: Code, x: Tensor) -> Code:
    """One tensor object given twice."""
    return trace(code, (x, x)).program


def merges_equal_inputs(code: Code, x: Tensor) -> Code:
    """Take the second input for the first, as it is in the example."""
    program = trace(lambda a: code(a, a), (x,)).program
    return lambda a, b: program(a)


@catches(merges_equal_inputs, capture=trace_two_inputs)
def test_one_tensor_twice_stays_two_inputs(capture: Code, device: torch.device, observe: Observe) -> None:
    """An example whose inputs are one tensor object gives a program with two inputs.

    pytorch/pytorch#144683 is the same question of torch.export. 1.13 to 2.15.
    """

    def code(a: Tensor, b: Tensor) -> Tensor:
        return a + b * 10

    x = torch.ones(2, device=device)
    check_generalizes(code, capture(code, x), {"equal": (x, x), "different": (x * 2, x * 3)}, observe)
