"""torch.jit.trace: signatures and containers, and what is left of TorchScript."""

from __future__ import annotations

import dataclasses
import inspect
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, host, uncounted, values
from conformance.instruments.capture import trace
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.weights import uniform

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


@dataclasses.dataclass
class Answer:
    """A dataclass that no tracer knows."""

    hidden: Tensor


CONTAINERS: dict[str, Code] = {
    "tuple_of_one": lambda x: (x + 1,),
    "nested_cache": lambda x: (x, ((x * 2, x * 3), (x * 4, x * 5))),
    "list": lambda x: [x, x + 1],
    "dict": lambda x: {"hidden": x, "cache": x + 1},
    "dict_in_tuple": lambda x: (x, {"cache": {"layer": x}}),
    "none_in_tuple": lambda x: (x, None),
    "dataclass": lambda x: Answer(x),
}


def return_as_it_is(answer: Any) -> Any:
    """Nothing is done to the answer."""
    return answer


def returns_first_tensor(answer: Any) -> Any:
    """All but the first tensor is dropped."""
    while not isinstance(answer, Tensor):
        answer = answer.hidden if isinstance(answer, Answer) else next(iter(answer.values() if isinstance(answer, dict) else answer))
    return answer


@pytest.mark.parametrize("container", ["tuple_of_one", "nested_cache", "list", "dict"])
@catches(returns_first_tensor, hand_over=return_as_it_is)
def test_container_is_kept(hand_over: Code, container: str, device: torch.device, observe: Observe) -> None:
    """A trace keeps tuples, nested tuples of a cache, lists, and with strict=False a dict of tensors.

    The article on tracing OPT; llvm/torch-mlir#952, pytorch/pytorch#14875, pytorch/pytorch#27743. 1.13 to 2.15.
    """
    make = CONTAINERS[container]
    traced = trace(lambda x: hand_over(make(x)), (uniform((2,)).to(device),), strict=container != "dict")
    check_generalizes(make, traced, {"pair": (uniform((2,)).to(device),), "five": (uniform((5,), "b").to(device),)}, observe)


@pytest.mark.parametrize("container", ["dict", "dict_in_tuple", "none_in_tuple", "dataclass"])
@catches(returns_first_tensor, hand_over=return_as_it_is)
def test_container_is_refused(hand_over: Code, container: str, device: torch.device) -> None:
    """A container that a trace cannot hold is refused at the trace, and nothing of it is dropped.

    The article on tracing OPT; pytorch/pytorch#89374. Strict for the dict, which strict=False takes. 1.13 to 2.15.
    """
    make = CONTAINERS[container]
    with pytest.raises(RuntimeError):
        trace(lambda x: hand_over(make(x)), (uniform((2,)).to(device),), strict=container == "dict")


class Scaled(nn.Module):
    """Optional inputs, by keyword."""

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        """All of one shape."""
        x = x if scale is None else x * scale
        return x if mask is None else x + mask


def trace_by_keyword(module: nn.Module, x: Tensor, scale: Tensor) -> Code:
    """Name the inputs that the program shall have."""
    if "example_kwarg_inputs" not in inspect.signature(torch.jit.trace).parameters:
        pytest.skip("torch.jit.trace takes no example_kwarg_inputs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.jit.trace(module, example_kwarg_inputs={"x": x, "scale": scale})
    return lambda x, scale: program(x=x, scale=scale)


def binds_keyword_of_example(module: nn.Module, x: Tensor, scale: Tensor) -> Code:
    """Close over the keyword's value."""
    program = trace(lambda x: module(x, scale=scale), (x,)).program
    return lambda x, scale: program(x)


@catches(binds_keyword_of_example, capture=trace_by_keyword)
def test_keyword_is_an_input(capture: Code, device: torch.device, observe: Observe) -> None:
    """A keyword argument named to the tracer is an input of the program, not a constant of the example.

    pytorch/pytorch#81623. `example_kwarg_inputs` since 2.0, to 2.15.
    """
    module, x = Scaled(), uniform((3,)).to(device)
    inputs = {"twice": (x, x * 2), "thrice": (x, x * 3)}
    check_generalizes(lambda x, scale: module(x, scale=scale), capture(module, x, x * 2), inputs, observe)


def pass_it_on(program: Code, x: Tensor, mask: Tensor) -> Any:
    """Hand the program what the module would take."""
    return program(x, mask)


def drops_what_does_not_fit(program: Code, x: Tensor, mask: Tensor) -> Any:
    """Catch the refusal, call without."""
    try:
        return program(x, mask)
    except RuntimeError:
        return program(x)


@catches(drops_what_does_not_fit, call=pass_it_on)
def test_omitted_input_is_refused(call: Code, device: torch.device) -> None:
    """An optional input that the trace left out is refused by the program, not ignored.

    pytorch/pytorch#81623, intel/ipex-llm#8027. 1.13 to 2.15.
    """
    x = uniform((3,)).to(device)
    program = trace(Scaled(), (x,)).program
    with pytest.raises(RuntimeError):
        call(program, x, x + 1)


def keep_branch_by_script(code: Code, x: Tensor) -> Code:
    """Compile the source: both branches are there."""
    del x
    return torch.jit.script(code)


def traces_the_branch(code: Code, x: Tensor) -> Code:
    """Record the branch of the example."""
    return trace(code, (x,)).program


def halve_positive(x: Tensor) -> Tensor:
    """A branch on data, as torch.jit.script compiles it."""
    if bool(x.sum() > 0):
        x = x / 2
    return x


@host
@catches(traces_the_branch, capture=keep_branch_by_script)
def test_torchscript_still_works(capture: Code, observe: Observe) -> None:
    """torch.jit.script still compiles a branch on data; observed is what warning script, trace and save give.

    pytorch/pytorch#167910, pytorch/pytorch#145995. Silent until 2.9, DeprecationWarning 2.10 to 2.13, FutureWarning from 2.14.
    """
    x = torch.ones(2)
    observe("script", _deprecation(lambda: torch.jit.script(nn.ReLU())))
    observe("trace", _deprecation(lambda: torch.jit.trace(nn.ReLU(), (x,))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = capture(halve_positive, x)
    observe("save", _deprecation(lambda: torch.jit.save(program, io.BytesIO())))
    check_generalizes(halve_positive, program, {"positive": (x,), "negative": (-x,)}, observe)


def _deprecation(act: Callable[[], object]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    texts = ("deprecated", "not supported")
    kinds = {w.category.__name__ for w in caught if any(text in str(w.message) for text in texts)}
    return ", ".join(sorted(kinds)) or "silent"
