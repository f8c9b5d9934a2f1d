"""What compiled code writes: buffers, lists, dicts, objects, globals. Each write must be there after the call."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

BACKENDS = ("eager", "aot_eager")


class KeyCache(nn.Module):
    """Keys at positions, in a registered buffer."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(4, 2))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """`x` `(1, 2)`, `position` `(1,)`."""
        self.keys[position] = x
        self.keys.index_add_(0, position, x)
        return self.keys * 1


class KeyCacheOutOfPlace(KeyCache):
    """Computes the new keys and forgets to keep them."""

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """`x` `(1, 2)`, `position` `(1,)`."""
        return self.keys.index_copy(0, position, x * 2)


@pytest.mark.parametrize("backend", BACKENDS)
@catches(KeyCacheOutOfPlace, build=KeyCache)
def test_buffer_is_written(build: Code, backend: str, device: torch.device, observe: Observe) -> None:
    """Writes by index into a registered buffer are in the buffer after each call, in one graph.

    meta-pytorch/torchtune#1663, huggingface/transformers#32168. 2.0 to 2.15.
    """
    module = build().to(device)
    inputs = {f"at{i}": (torch.full((1, 2), i + 1.0, device=device), torch.tensor([i], device=device)) for i in range(3)}
    check_compiled(module, inputs, observe, backend=backend, fullgraph=True)
    with compiling(module, backend) as (compiled, report):
        for x, position in inputs.values():
            compiled(x, position)
    assert module.keys.tolist() == [[2.0, 2.0], [4.0, 4.0], [6.0, 6.0], [0.0, 0.0]]
    assert report.graphs == 1


class Recorder(nn.Module):
    """Holds one of each thing that a forward writes to."""

    items: list[Any] = []  # noqa: RUF012  # shared by the class, as asked about

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Tensor] = []
        self.table: dict[str, Any] = {"a": 0, "b": 0, "c": 0, "calls": 0}
        self.counts: dict[str, int] = defaultdict(int)
        self.recent: deque[Tensor] = deque(maxlen=2)
        self.order = OrderedDict(a=1, b=2, c=3)
        self.seen: set[int] = set()
        self.state = SimpleNamespace(calls=0, last=None)
        self.last: Any = None
        self.calls = 0
        self.nested: list[list[Any]] = [[1, 2], [3, 4], [5, 6], [7, 8]]

    @property
    def latest(self) -> Any:
        """Twice what was set."""
        return self.last

    @latest.setter
    def latest(self, value: Any) -> None:
        self.last = value * 2


def _swap(m: Recorder, x: Tensor) -> None:
    first = next(iter(m.order))
    m.order[first] = m.order.pop(first)


def _set_nested(m: Recorder, x: Tensor) -> None:
    m.nested[1][0] = x


#: Name -> what the forward writes.
WRITES: dict[str, Code] = {
    "list_append": lambda m, x: m.log.append(x * 2),
    "list_insert": lambda m, x: m.log.insert(0, x * 2),
    "list_extend": lambda m, x: m.log.extend([x, x * 2]),
    "list_pop": lambda m, x: m.nested.pop(),
    "nested_list": _set_nested,
    "dict": lambda m, x: m.table.update(last=x * 2),
    "dict_count": lambda m, x: m.table.__setitem__("calls", m.table["calls"] + 1),
    "dict_delete": lambda m, x: m.table.pop(next(iter(m.table))),
    "default_dict": lambda m, x: m.counts.__setitem__("a", m.counts["a"] + 1),
    "deque": lambda m, x: m.recent.append(x * 2),
    "ordered_dict": _swap,
    "move_to_end": lambda m, x: m.order.move_to_end(next(iter(m.order))),
    "set": lambda m, x: m.seen.add(len(m.seen)),
    "object": lambda m, x: setattr(m.state, "last", x * 2),
    "tensor_attribute": lambda m, x: setattr(m, "last", x * 2),
    "number_attribute": lambda m, x: setattr(m, "calls", m.calls + 1),
    "property": lambda m, x: setattr(m, "latest", x),
}


class Writing(Recorder):
    """The module with one of these writes."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        WRITES[self.form](self, x)
        return x + 1


@pytest.mark.parametrize("form", WRITES)
@catches(replays_first_program, compiled_by=compiling)
def test_write_to_module_is_kept(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """What a compiled forward writes to lists, dicts and attributes of its module is there after each call, as in eager code.

    pytorch/pytorch#139160 (append), pytorch/pytorch#103563 (nested lists), pytorch/pytorch#198189 (move_to_end),
    pytorch/pytorch#176599 (property).
    """
    inputs = {f"call{i}": (uniform((2,), str(i)).to(device),) for i in range(3)}
    check_compiled(Writing(form), inputs, observe, compiled_by=compiled_by)


SHARED: list[Any] = []

TOTAL = 0


class Namespace:
    """A class that keeps what was seen."""

    items: list[Any] = []  # noqa: RUF012  # shared by the class, as asked about
    calls = 0


def _count_global(x: Tensor) -> Tensor:
    global TOTAL
    TOTAL += 1
    return x + TOTAL


def _append_global(x: Tensor) -> Tensor:
    SHARED.append(x * 2)
    return x + len(SHARED)


def _append_to_class(x: Tensor) -> Tensor:
    Namespace.items.append(x * 2)
    return x + 1


def _count_in_class(x: Tensor) -> Tensor:
    Namespace.calls += 1
    return x + Namespace.calls


def _append_in_local_class(x: Tensor) -> Tensor:
    log = SHARED

    class Helper:
        def touch(self) -> None:
            log.append(1)

    Helper().touch()
    return x + 1


def _swap_global_function(x: Tensor) -> Tensor:
    SHARED[:] = [*SHARED, len(SHARED)]
    return x * 2


def _forget() -> None:
    global TOTAL
    TOTAL = 0
    SHARED.clear()
    Namespace.items.clear()
    Namespace.calls = 0


OUTER: dict[str, Code] = {
    "global_number": _count_global,
    "global_list": _append_global,
    "slice_of_list": _swap_global_function,
    "class_list": _append_to_class,
    "class_number": _count_in_class,
    "closure_of_local_class": _append_in_local_class,
}


@pytest.mark.parametrize("form", OUTER)
@catches(replays_first_program, compiled_by=compiling)
def test_write_outside_is_kept(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """What compiled code writes to globals and classes is there after each call.

    pytorch/pytorch#169253 (a list of a class), pytorch/pytorch#197896 (a closure of a local class). 2.0 to 2.15; what is written to a
    class is lost on 2.4 to 2.11, in silence.
    """
    _forget()
    with compiled_by(OUTER[form]) as (compiled, report):
        for index in range(3):
            compiled(uniform((2,), str(index)).to(device))
    written = (TOTAL, len(SHARED), len(Namespace.items), Namespace.calls)
    _forget()
    for index in range(3):
        OUTER[form](uniform((2,), str(index)).to(device))
    expected = (TOTAL, len(SHARED), len(Namespace.items), Namespace.calls)
    _forget()
    observe("graphs", report.graphs)
    assert written == expected
