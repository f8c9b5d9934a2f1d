"""What compiled code returns: containers, classes, views, identities."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.bits import same_bits
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.snapshots import tensors_of
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass
class Output:
    """A plain dataclass."""

    a: Tensor
    b: Any = None


@dataclasses.dataclass
class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """A dataclass that is a dict of what is not None, as transformers and diffusers have it."""

    a: Any = None
    b: Any = None

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if value is not None:
                self[each.name] = value


class Box:
    """A plain object."""

    def __init__(self, a: Tensor) -> None:
        self.a, self.b = a, 2


class Table(dict):  # type: ignore[type-arg]
    """A dict of a class of its own."""


#: Name -> what is returned.
CONTAINERS: dict[str, Code] = {
    "tensor": lambda x: x + 1,
    "tuple": lambda x: (x + 1, (x * 2, x * 3)),
    "tuple_of_one": lambda x: (x + 1,),
    "growing_tuple": lambda x: (x + 1, *((x * 2, x * 3),)),
    "list": lambda x: [x + 1, [x * 2]],
    "dict": lambda x: {"a": x + 1, "n": None},
    "dict_of_numbers": lambda x: {3: x + 1, 1: 2.5, "flag": True},
    "ordered_dict": lambda x: OrderedDict(b=x + 1, a=x),
    "named_tuple": lambda x: Pair(x + 1, x),
    "dataclass": lambda x: Output(x + 1),
    "none": lambda x: (x + 1, None),
    "number": lambda x: (x + 1, 3, x.size(0), "text"),
    "dtype": lambda x: (x + 1, x.dtype, x.shape),
    "set": lambda x: (x + 1, {1, 2}),
    "slice": lambda x: (x + 1, slice(0, x.size(0))),
    "range": lambda x: (x + 1, range(x.size(0))),
    "same_twice": lambda x: [x + 1] * 2,
    "input": lambda x: (x, x + 1),
    "nothing": lambda x: None,
    "object": lambda x: Box(x + 1),
    "own_dict": lambda x: Table(a=x + 1),
    "function": lambda x: (x + 1, abs),
    "generator": lambda x: tuple(x * i for i in range(3)),
    "zip": lambda x: dict(zip("ab", (x + 1, x))),
    "starred": lambda x: (lambda first, *rest: (first, rest))(*x.unbind()),
}


@contextmanager
def loses_containers(code: Code, **options: Any) -> Any:
    """Flat tuples, as a captured graph returns them."""
    yield lambda *inputs: (*tensors_of(code(*inputs)), 0), Report()


@pytest.mark.parametrize("form", CONTAINERS)
@catches(loses_containers, compiled_by=compiling)
def test_container_is_kept(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """Compiled code returns the containers and classes that eager code returns, whatever breaks for it.

    pytorch/pytorch#102878, huggingface/diffusers' BaseOutput. 2.0 to 2.15.
    """
    inputs = {f"size{n}": (torch.ones(n, device=device),) for n in (2, 3)}
    check_compiled(CONTAINERS[form], inputs, observe, compiled_by=compiled_by)


#: Those that a model is known to return.
WHOLE: dict[str, Code] = {
    **{name: CONTAINERS[name] for name in ("dict", "named_tuple", "dataclass", "growing_tuple")},
    "model_output": lambda x: ModelOutput(a=x + 1),
}


@contextmanager
def allows_breaks(code: Code, **options: Any) -> Any:
    """`fullgraph` is taken for a wish: what breaks runs in eager code, and nobody is told."""
    yield lambda *inputs: code(*inputs), Report()


@values
@pytest.mark.parametrize("form", WHOLE)
@catches(allows_breaks, compiled_by=compiling)
def test_container_is_whole(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """dict, namedtuple, dataclass, a tuple that grows, and a ModelOutput come out of one graph under `fullgraph=True`.

    pytorch/pytorch#102878. A ModelOutput since 2.7; the others on 2.1 to 2.15.
    """
    report = check_compiled(WHOLE[form], {"any": (torch.ones(2, device=device),)}, observe, compiled_by=compiled_by, fullgraph=True)
    assert report.graphs == 1


#: Name -> what is returned of an input.
VIEWS: dict[str, Code] = {
    "input": lambda x: x,
    "view": lambda x: x.view(-1),
    "slice": lambda x: x[1:],
    "transposed": lambda x: x.t(),
    "detached": lambda x: x.detach(),
    "expanded": lambda x: x[:, :1].expand(2, 3),
    "unbound": lambda x: x.unbind()[1],
    "contiguous": lambda x: x.contiguous(),
    "same_type": lambda x: x.to(torch.float32),
    "reshaped": lambda x: x.reshape(3, 2),
    "written": lambda x: x.add_(1),
}


@contextmanager
def returns_copies(code: Code, **options: Any) -> Any:
    """The right numbers in memory of their own."""
    yield lambda *inputs: code(*inputs).clone(), Report()


@values
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("form", VIEWS)
@catches(returns_copies, compiled_by=compiling)
def test_view_shares_memory(compiled_by: Code, form: str, backend: str, device: torch.device) -> None:
    """A view of an input that compiled code returns shares the input's memory, so that a later write shows in both.

    pytorch/pytorch#93363, pytorch/xla#5430. 2.0 to 2.15.
    """
    eager, x = uniform((2, 3)).to(device), uniform((2, 3)).to(device)
    expected = VIEWS[form](eager)
    with compiled_by(VIEWS[form], backend=backend) as (compiled, _):
        got = compiled(x)
    assert (got.shape, got.stride()) == (expected.shape, expected.stride())
    with torch.no_grad():
        x.mul_(3)
        eager.mul_(3)
    assert same_bits(got, expected)


def _identities(value: Any) -> list[int]:
    ids = [id(tensor) for tensor in tensors_of(value)]
    return [ids.index(each) for each in ids]


@contextmanager
def copies_results(code: Code, **options: Any) -> Any:
    """Every output is a tensor of its own."""
    yield lambda *inputs: [tensor.clone() for tensor in code(*inputs)], Report()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@catches(copies_results, compiled_by=compiling)
def test_one_tensor_stays_one(compiled_by: Code, backend: str, device: torch.device) -> None:
    """A tensor that is returned twice is one object, and an input that is returned is that input.

    Own observation. 2.0 to 2.15.
    """

    def code(x: Tensor) -> list[Tensor]:
        y = x + 1
        return [y, x, y, x]

    x = torch.ones(2, device=device)
    with compiled_by(code, backend=backend) as (compiled, _):
        got = compiled(x)
    assert _identities([x, *got]) == [0, 1, 0, 1, 0]


def own_the_input(code: Code, x: Tensor) -> Tensor:
    """A copy of the argument."""
    result: Tensor = code(copy.deepcopy(x))
    return result


def reuses_the_output(code: Code, x: Tensor) -> Tensor:
    """What a static buffer would do: each call returns the memory of the last."""
    result: Tensor = code(x)
    out = _STATIC.setdefault(tuple(result.shape), result)
    out.copy_(result)
    return out


_STATIC: dict[Any, Tensor] = {}


@values
@catches(reuses_the_output, run=own_the_input)
def test_second_call_leaves_first_answer(run: Code, device: torch.device) -> None:
    """The answer of the first call is what it was after the second call.

    Own observation; the hazard is that of static output buffers. 2.0 to 2.15.
    """
    _STATIC.clear()
    x = uniform((2,)).to(device)
    with compiling(lambda x: x * 2, "aot_eager") as (compiled, _):
        first = run(compiled, x)
        run(compiled, x + 1)
    _STATIC.clear()
    assert same_bits(first, x * 2)
