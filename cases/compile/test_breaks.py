"""What breaks a graph, and how the same is written without a break. Each wrong twin is what people write."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards import is_compiling
from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.bits import same_bits
from conformance.instruments.compilation import Report, compiling, fullgraph_error, has_dynamo_config
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

LOG = logging.getLogger("conformance.cases")


def check_whole(code: Code, inputs: dict[str, Any], observe: Observe) -> Report:
    """`code` answers like eager code on all inputs, in graphs without a break."""
    report = check_compiled(code, inputs, observe)
    observe("fullgraph", fullgraph_error(code, *next(iter(inputs.values()))))
    assert not report.breaks, report.breaks[0]
    assert not report.skipped, report.skipped[0]
    return report


def _signs(device: torch.device) -> dict[str, Any]:
    x = (uniform((3,)).abs() + 0.5).to(device)
    return {"positive": (x,), "negative": (-x,)}


def choose_by_where(x: Tensor) -> Tensor:
    """Both branches, chosen by data."""
    y = x.sin()
    return torch.where(y.sum() > 0, y + 1, y - 1)


def branches_on_data(x: Tensor) -> Tensor:
    """A Python branch on a tensor."""
    y = x.sin()
    return y + 1 if y.sum() > 0 else y - 1


@values
@catches(branches_on_data, choose=choose_by_where)
def test_choice_by_data_is_whole(choose: Code, device: torch.device, observe: Observe) -> None:
    """A choice by data written with `where` is one graph for both outcomes.

    pytorch/torchdynamo#1100; karpathy/nanochat's rule: no branch on data. The branch: 2 graphs a path, on 2.0 to 2.15.
    """
    report = check_whole(choose, _signs(device), observe)
    assert report.after == [1, 1]


def keep_branch(code: Code) -> Code:
    """The function as it is."""
    return code


def takes_first_branch(code: Code) -> Code:
    """What a tracer does: the branch of the first input for ever."""
    return lambda x: x.sin() + 1


@values
@catches(takes_first_branch, write=keep_branch)
def test_branch_on_data_is_followed(write: Code, device: torch.device, observe: Observe) -> None:
    """A Python branch on data costs one break, answers right on both paths, and is refused by `fullgraph=True`.

    pytorch/pytorch#54602. 3 graphs for 2 paths, 2.0 to 2.15; refused by UserError from 2.1 to 2.6, by Unsupported on 2.0 and since 2.7.
    """
    with compiling(write(branches_on_data)) as (compiled, report):
        for (x,) in _signs(device).values():
            assert same_bits(compiled(x), branches_on_data(x))
    observe("fullgraph", fullgraph_error(branches_on_data, *_signs(device)["positive"]))
    assert (len(report.breaks), report.graphs) == (1, 3)
    assert fullgraph_error(branches_on_data, *_signs(device)["positive"]) != "none"


def keep_a_tensor(x: Tensor) -> Tensor:
    """The sum stays a tensor."""
    return x * x.sum()


def asks_for_item(x: Tensor) -> Tensor:
    """The sum becomes a Python number."""
    return x * x.sum().item()


@values
@catches(asks_for_item, scale=keep_a_tensor)
def test_reduction_stays_whole(scale: Code, device: torch.device, observe: Observe) -> None:
    """A reduction that stays a tensor is one graph for all values.

    pytorch/pytorch#158642, pytorch/pytorch#196198. With `.item()` 1 break by default, on 2.0 to 2.15.
    """
    assert check_whole(scale, _signs(device), observe).graphs == 1


def capture_scalars(code: Code, x: Tensor) -> Report:
    """Let dynamo keep scalars as symbols."""
    return _captured(code, x, True)


def captures_by_default(code: Code, x: Tensor) -> Report:
    """What is set by default breaks."""
    return _captured(code, x, False)


def _captured(code: Code, x: Tensor, value: bool) -> Report:
    from torch._dynamo import config

    asked = {"capture_scalar_outputs": value, **({"dynamic_shapes": True} if has_dynamo_config("dynamic_shapes") else {})}
    with config.patch(asked), compiling(code) as (compiled, report):
        assert torch.allclose(compiled(x), code(x))
        assert torch.allclose(compiled(x * 2), code(x * 2))
    return report


@values
@catches(captures_by_default, capture=capture_scalars)
def test_item_is_captured_when_asked(capture: Code, device: torch.device, observe: Observe) -> None:
    """With `capture_scalar_outputs` `.item()` stays in one graph and follows new data; `fullgraph=True` alone does it since 2.10.

    pytorch/pytorch#163121: `fullgraph=True` raises until 2.9 and is accepted since 2.10, observed as `fullgraph`.
    """
    if not has_dynamo_config("capture_scalar_outputs"):
        pytest.skip("no capture_scalar_outputs")
    x = (uniform((3,)).abs() + 0.5).to(device)
    observe("fullgraph", fullgraph_error(asks_for_item, x))
    report = capture(asks_for_item, x)
    assert (report.graphs, len(report.breaks)) == (1, 0)


#: Name -> what is done on the way, in Python.
SAYINGS: dict[str, Code] = {
    "print": lambda y: print("half way"),
    "print_shape": lambda y: print(y.shape),
    "logger": lambda y: LOG.info("half way"),
    "warning": lambda y: warnings.warn("half way", stacklevel=1),
}


def say_unless_compiling(say: Code, y: Tensor) -> None:
    """Nothing is said where code is compiled."""
    if not is_compiling():
        say(y)


def says_always(say: Code, y: Tensor) -> None:
    """Say it whoever listens."""
    say(y)


@pytest.mark.filterwarnings("ignore:half way")
@pytest.mark.parametrize("form", SAYINGS)
@catches(says_always, tell=say_unless_compiling)
def test_saying_something_is_guarded(tell: Code, form: str, device: torch.device, observe: Observe) -> None:
    """print, a logger's line or a warning in the middle of a forward costs no graph break behind the guard is_compiling.

    pytorch/pytorch#93739, pytorch/pytorch#132635, tenstorrent/tt-torch#852. Without the guard 1 break each, on 2.0 to 2.15.
    """
    say = SAYINGS[form]

    def forward(x: Tensor) -> Tensor:
        y = x.sin()
        tell(say, y)
        return y.cos()

    check_whole(forward, {"any": (torch.ones(2, device=device),)}, observe)


def fill_with_number(size: int, device: torch.device) -> Tensor:
    """A Python float."""
    return torch.full((size, size), float("-inf"), device=device)


def fill_with_tensor(size: int, device: torch.device) -> Tensor:
    """A tensor of one element, as OPT's mask helper has it."""
    return torch.full((size, size), torch.tensor(float("-inf")), device=device)


def fills_with_item(size: int, device: torch.device) -> Tensor:
    """A Python number that comes out of a tensor."""
    return torch.full((size, size), torch.tensor(float("-inf")).sum().item(), device=device)


@catches(fills_with_item, fill=fill_with_number)
def test_fill_by_number_is_whole(fill: Code, device: torch.device, observe: Observe) -> None:
    """`torch.full` with a Python float is one graph.

    The article on tracing OPT, huggingface/transformers#24696. 2.0 to 2.15.
    """
    check_whole(lambda x: fill(x.size(0), x.device) + x, {"any": (torch.ones(3, device=device),)}, observe)


@catches(fills_with_item, fill=fill_with_tensor)
def test_fill_by_tensor_is_whole(fill: Code, device: torch.device, observe: Observe) -> None:
    """`torch.full` with a tensor of one element hides an `.item()`, and is one graph all the same.

    The article on tracing OPT, huggingface/transformers#24696. 2.1 to 2.15.
    """
    check_whole(lambda x: fill(x.size(0), x.device) + x, {"any": (torch.ones(3, device=device),)}, observe)


#: Name -> (written with tensors, written with Python numbers that come out of tensors).
PAIRS: dict[str, tuple[Code, Code]] = {
    "mask": (lambda x: torch.where(x > 0, x, x * 0).sum(), lambda x: x[x > 0].sum()),
    "nonzero": (lambda x: (x > 0).sum(), lambda x: torch.nonzero(x > 0).size(0) + x * 0),
    "sort": (lambda x: x.sort().values, lambda x: torch.stack(sorted(x, key=float))),
    "list": (lambda x: torch.stack([x[0], x[1]]), lambda x: torch.tensor([x[0].item(), x[1].item()], device=x.device) + 0),
    "assert": (lambda x: x + 1, lambda x: x + 1 if bool((x < 9).all()) else None),
    "clamp": (lambda x: x.clamp(max=x.mean()), lambda x: x.clamp(max=float(x.mean()))),
    "largest": (lambda x: x.index_select(0, x.argmax().view(1)), lambda x: x[int(x.argmax())] + 0),
    "slice": (lambda x: x * (torch.arange(3, device=x.device) < x.sign().sum()), lambda x: x[: int(x.sign().sum())] * 1),
    "loop": (lambda x: x * torch.ones_like(x).cumsum(0), lambda x: torch.stack([v * (i + 1) for i, v in enumerate(x.tolist())] or [x])),
}


def write_in_tensors(pair: tuple[Code, Code]) -> Code:
    """As tensor operations."""
    return pair[0]


def writes_in_numbers(pair: tuple[Code, Code]) -> Code:
    """By way of Python numbers."""
    return pair[1]


@values
@pytest.mark.parametrize("form", PAIRS)
@catches(writes_in_numbers, write=write_in_tensors)
def test_data_stays_in_tensors(write: Code, form: str, device: torch.device, observe: Observe) -> None:
    """What depends on data, written as tensor operations of fixed size, is one graph on any data.

    Own observation: masks, counts, sorts, limits and slices by way of Python numbers break or are given up, on 2.0 to 2.15.
    """
    assert check_whole(write(PAIRS[form]), _signs(device), observe).graphs == 1
