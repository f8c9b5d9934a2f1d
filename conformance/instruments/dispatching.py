"""What a Mac would trip over, seen on any machine: a recorder of dispatched ops, and a mode that refuses dtypes as MPS does.

Both are dispatch modes (torch 1.13 and later). They see ops below autograd; `torch.tensor(..., device="meta")` and
`torch.from_numpy` dispatch nothing, so what these make shows up at the first op that takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from conformance.instruments import callers

#: Dtypes that MPS does not hold.
WIDE = (torch.float64, torch.complex128)
#: Tensors of more dimensions than this are refused by MPS.
MOST_DIMENSIONS = 16

_COPIES = frozenset({"_to_copy", "copy_", "copy", "_foreach_copy_"})
#: Ops whose result is a number or a size that the host must know before it goes on.
_SYNCS = frozenset(
    {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
)
#: Python methods that read a tensor's numbers; on a CPU tensor they dispatch nothing.
_READS = frozenset({"tolist", "numpy", "cpu", "__array__"})
_MATRIX_OPS = frozenset({"mm", "bmm", "addmm", "baddbmm", "linear", "convolution", "native_layer_norm"})
_REDUCTIONS = frozenset({"max", "min", "argmax", "argmin", "cumsum", "cumprod", "sort", "topk", "prod", "median"})


def elsewhere(device: torch.device) -> torch.device:
    """A device that is not the host: the cell's own, or meta in a cpu cell, where it stands for any accelerator."""
    return torch.device("meta") if device.type == "cpu" else device


@dataclass(frozen=True)
class Hazard:
    """One thing that an accelerator would refuse, get wrong or wait for: its kind, the op, what it was, and `file:line`."""

    kind: str
    op: str
    detail: str
    where: str

    def __str__(self) -> str:
        return f"{self.op} {self.detail} ({self.where})".replace("  ", " ")


@dataclass
class Recording:
    """Ops by name with their counts, and hazards in order."""

    ops: Counter[str] = field(default_factory=Counter)
    hazards: list[Hazard] = field(default_factory=list)

    def of(self, *kinds: str) -> list[str]:
        """The hazards of these kinds as text, repeated ones too: an empty list is what a case asserts."""
        return [str(hazard) for hazard in self.hazards if hazard.kind in kinds]

    def count(self, kind: str) -> int:
        """How many hazards of that kind there were."""
        return len(self.of(kind))


@dataclass(frozen=True)
class Call:
    """One dispatched op, flattened."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]
    inputs: list[torch.Tensor]
    results: list[torch.Tensor]
    device: str

    @property
    def in_place(self) -> bool:
        """Whether the op writes its first argument (or list of arguments)."""
        return self.name.endswith("_") and not self.name.endswith("__") and bool(self.inputs)


def _float64(call: Call) -> Iterator[str]:
    for role, tensors in (("takes", call.inputs), ("makes", call.results)):
        for dtype in {tensor.dtype for tensor in tensors if tensor.device.type == call.device and tensor.dtype in WIDE}:
            yield f"{role} {_name(dtype)}"


def _mixed(call: Call) -> Iterator[str]:
    found = sorted({_name(tensor.dtype) for tensor in call.inputs if tensor.is_floating_point()})
    if len(found) > 1 and call.name not in _COPIES:
        yield f"mixes {', '.join(found)}"


def _stray(call: Call) -> Iterator[str]:
    if call.inputs and call.name != "lift_fresh":
        return
    for kind in {tensor.device.type for tensor in call.results} - {call.device}:
        yield f"made on {kind}"


def _crossing(call: Call) -> Iterator[str]:
    found = sorted({tensor.device.type for tensor in call.inputs})
    if len(found) > 1 and call.name not in _COPIES:
        yield f"takes tensors of {', '.join(found)}"


def _copy(call: Call) -> Iterator[str]:
    """Copies between devices: `from->to`, `blocking` or `non_blocking`, and `pinned` for the host's side."""
    if call.name not in _COPIES or not call.inputs or not call.results:
        return
    source = call.inputs[-1]
    ends = (source.device.type, call.results[0].device.type)
    if ends[0] != ends[1]:
        waits = "non_blocking" if call.kwargs.get("non_blocking") or (len(call.args) > 2 and call.args[2] is True) else "blocking"
        yield f"{ends[0]}->{ends[1]} {waits}{' pinned' if source.device.type == 'cpu' and source.is_pinned() else ''}"


def _sync(call: Call) -> Iterator[str]:
    if call.name in _SYNCS:
        yield ""
    elif call.name == "index" and any(index.dtype in (torch.bool, torch.uint8) for index in call.inputs[1:]):
        yield "by a mask"
    elif call.name == "repeat_interleave" and not call.kwargs.get("output_size"):
        yield "of unknown length"
    for copied in _copy(call):
        if "->cpu blocking" in copied:
            yield copied


def _layout(call: Call) -> Iterator[str]:
    if call.name in _MATRIX_OPS:
        for at, tensor in enumerate(call.inputs):
            if not tensor.is_contiguous() and not _is_transposed(tensor):
                yield f"operand {at} has strides {tuple(tensor.stride())}"


def _in_place_on_view(call: Call) -> Iterator[str]:
    if call.in_place and not call.inputs[0].is_contiguous():
        yield f"writes into strides {tuple(call.inputs[0].stride())}"


def _rank(call: Call) -> Iterator[str]:
    most = max((tensor.dim() for tensor in (*call.inputs, *call.results)), default=0)
    if most > MOST_DIMENSIONS:
        yield f"has {most} dimensions"


def _int64(call: Call) -> Iterator[str]:
    if call.name in _REDUCTIONS and call.inputs and call.inputs[0].dtype == torch.int64:
        yield "of int64"


def _float_step(call: Call) -> Iterator[str]:
    if call.name == "arange" and any(isinstance(bound, float) and not bound.is_integer() for bound in call.args):
        yield f"of {', '.join(map(str, call.args))}"


def _uneven_pool(call: Call) -> Iterator[str]:
    if "adaptive_" in call.name and "backward" not in call.name:
        wanted = [int(size) for size in call.args[1]]
        given = list(call.inputs[0].shape[-len(wanted) :])
        if any(size % part for size, part in zip(given, wanted)):
            yield f"{given} to {wanted}"


#: Kind of hazard -> what tells it of a call, a text each time.
RULES: dict[str, Callable[[Call], Iterator[str]]] = {
    "float64": _float64,
    "mixed": _mixed,
    "stray": _stray,
    "crossing": _crossing,
    "copy": _copy,
    "sync": _sync,
    "layout": _layout,
    "in_place_on_view": _in_place_on_view,
    "rank": _rank,
    "int64": _int64,
    "float_step": _float_step,
    "uneven_pool": _uneven_pool,
}
#: The kinds of hazards.
KINDS = (*RULES, "unawaited")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def _is_transposed(tensor: torch.Tensor) -> bool:
    """A plain transpose of a contiguous matrix, which every library of matrix products takes as it is."""
    return tensor.dim() >= 2 and tensor.transpose(-1, -2).is_contiguous()


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _where() -> str:
    """`file:line` of the call in the user's code; empty where there is none."""
    found = callers.line()
    return f"{Path(found['file']).name}:{found['line']}" if found else ""


class _Recorder(TorchDispatchMode):
    def __init__(self, recording: Recording, device: str) -> None:
        super().__init__()
        self._recording, self._device = recording, device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1]
        self._recording.ops[name] += 1
        call = Call(name, args, kwargs or {}, _tensors([args, kwargs or {}]), _tensors(result), self._device)
        for kind, rule in RULES.items():
            self._recording.hazards += [Hazard(kind, name, detail, _where()) for detail in rule(call)]
        return result


class _Reads(TorchFunctionMode):
    """Sees what dispatches no op: readers of a host tensor's numbers, and copies to the host that nobody waits for."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS and args and isinstance(args[0], torch.Tensor) and args[0].device.type == "cpu":
            self._recording.hazards.append(Hazard("sync", name, "", _where()))
        result = func(*args, **(kwargs or {}))
        if name in ("to", "copy_") and (kwargs or {}).get("non_blocking") and result.device.type == "cpu":
            self._recording.hazards.append(Hazard("unawaited", name, "to the host", _where()))
        return result


@contextmanager
def recorded(device: torch.device | str = "cpu") -> Iterator[Recording]:
    """Record what runs inside as the hazards that it would be on `device`; nothing is changed or refused."""
    recording = Recording()
    with _Reads(recording), _Recorder(recording, torch.device(device).type):
        yield recording


class _Refuser(TorchDispatchMode):
    def __init__(self, device: str, dtypes: tuple[torch.dtype, ...]) -> None:
        super().__init__()
        self._device, self._dtypes = device, dtypes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            if tensor.device.type == self._device and tensor.dtype in self._dtypes:
                raise TypeError(f"Cannot convert a {self._device} tensor to {_name(tensor.dtype)} dtype: the emulated device has none")
        return result


@contextmanager
def refusing(device: torch.device | str, dtypes: tuple[torch.dtype, ...] = WIDE) -> Iterator[None]:
    """Inside, an op that leaves a tensor of `dtypes` on `device` raises TypeError, as any op does on MPS for float64."""
    with _Refuser(torch.device(device).type, dtypes):
        yield
