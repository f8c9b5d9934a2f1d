"""Which operators a piece of code dispatches, as a device without composites of its own would see them, each with its call site.

A CPU runs composite operators by kernels that call others: what has no CPU kernel is run by its composite kernel with the recorder
still on, so that what it calls is seen as well, under it. Convolutions are leaves: their composite kernel picks a backend of the CPU.
"""

from __future__ import annotations

import bisect
import functools
import linecache
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from conformance.instruments import flags
from conformance.instruments.dispatching import Call

_LEAVES = frozenset({"aten::convolution", "aten::convolution_backward", "aten::_convolution"})
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
#: Torch functions that only hand on to an operator with an entry of its own on some device.
_THROUGH = {"svd": "linalg_svd"}
#: Functions whose own code asks for the device, so that what they do here is not all that they do there.
_OWN_WAY = frozenset({"linalg_pinv", "linalg_matrix_rank", "pinverse", "quantile", "nanquantile"})
_TORCH = str(Path(torch.__file__).parent)
#: Of torch's own frames only an optimizer's tells where in a model's life an operator is.
_OPTIMIZERS = str(Path(torch.__file__).parent / "optim")
_PACKAGE = Path(__file__).parent.parent
_OURS = (str(_PACKAGE / "instruments"), str(_PACKAGE / "incell"), str(_PACKAGE / "guards"))


@dataclass
class Seen:
    """One operator in one phase, under the same composites: how often, on which dtypes, with what flags, and its first call site."""

    op: str
    phase: str
    #: The composites that it ran inside, outermost first: where one of them has a kernel, this operator is not reached.
    inside: tuple[str, ...]
    site: str
    source: str
    count: int = 0
    dtypes: set[str] = field(default_factory=set)
    #: Flag -> [detail, call site], as first seen.
    flags: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {**vars(self), "inside": list(self.inside), "dtypes": sorted(self.dtypes)}


class Recording:
    """What was seen, in order of first appearance. `roots`: folders whose frames are the user's own, to name sites in; None: no sites."""

    def __init__(self, roots: Sequence[str] | None = ()) -> None:
        self.phase = ""
        self._sited = roots is not None
        self._roots = tuple(roots or ())
        self._seen: dict[tuple[str, str, tuple[str, ...]], Seen] = {}
        self._forward: list[tuple[int, tuple[str, str]]] = []

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._seen.values())

    def at(self, op: str, inside: tuple[str, ...]) -> Seen:
        """The entry of an operator under those composites."""
        key = (self.phase, op, inside)
        if key not in self._seen:
            self._seen[key] = Seen(op, self.phase, inside, *self.site())
        return self._seen[key]

    def site(self) -> tuple[str, str]:
        """`file:line` and the source line of whoever called: in a backward, of the forward call that the running node belongs to."""
        if not self._sited:
            return "", ""
        node = getattr(torch._C, "_current_autograd_node", lambda: None)()
        if node is not None and self._forward and hasattr(node, "_sequence_nr"):
            at = bisect.bisect_left(self._forward, (node._sequence_nr(), ("", "")))
            return self._forward[min(at, len(self._forward) - 1)][1]
        return self._calling()

    def remember(self, result: Any) -> None:
        """Note where the autograd nodes of a torch function's result came from."""
        for tensor in tree_flatten(result)[0] if self._sited else ():
            number = getattr(getattr(tensor, "grad_fn", None), "_sequence_nr", lambda: None)() if isinstance(tensor, torch.Tensor) else None
            if number is not None and (not self._forward or number > self._forward[-1][0]):
                self._forward.append((number, self._calling()))

    def _calling(self) -> tuple[str, str]:
        outer = ("", "")
        frame: Any = sys._getframe(2)
        while frame is not None:
            file, line = frame.f_code.co_filename, frame.f_lineno
            if file.startswith(self._roots or ("\0",)):
                return f"{file}:{line}", linecache.getline(file, line).strip()
            if file.startswith(_OPTIMIZERS) or not file.startswith((_TORCH, *_OURS, "<")):
                outer = outer if outer[0] else (f"{file}:{line}", linecache.getline(file, line).strip())
            frame = frame.f_back
        return outer


class _Dispatched(TorchDispatchMode):
    def __init__(self, recording: Recording, device: str, inside: list[str]) -> None:
        super().__init__()
        self._recording, self._device, self._inside = recording, device, inside

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled here, and a guard against it would import the compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        name = overload(func)
        seen = self._recording.at(name, tuple(self._inside))
        key = composite(func)
        if key is None or name in self._inside:
            result = func(*args, **kwargs)
        else:
            self._inside.append(name)
            try:
                with self:
                    result = func._op_dk(key, *args, **kwargs)
            finally:
                self._inside.pop()
        with torch._C.DisableTorchFunction():  # what is asked of tensors here is no call of the user's
            inputs = [*_tensors(args), *_tensors(list(kwargs.values()))]
            self._note(seen, Call(func._schema.name.split("::")[-1], args, kwargs, inputs, _tensors(result), self._device))
        return result

    def _note(self, seen: Seen, call: Call) -> None:
        seen.count += 1
        seen.dtypes.update(str(tensor.dtype)[6:] for tensor in (*call.inputs, *call.results))
        for flag, detail in flags.of_call(call):
            if flag not in seen.flags:
                seen.flags[flag] = [detail, self._recording.site()[0]]


class _Functions(TorchFunctionMode):
    """Sees torch functions before they decompose: those with an entry of their own on the device, and where autograd nodes come from."""

    def __init__(self, recording: Recording, entered: Iterable[str], inside: list[str]) -> None:
        super().__init__()
        self._recording, self._entered, self._inside = recording, frozenset(entered), inside

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        name = _THROUGH.get(name, name)
        for flag, detail in flags.of_function(name, args, kwargs):
            seen = self._recording.at(name, tuple(self._inside))
            seen.flags.setdefault(flag, [detail, seen.site])
        if name not in self._entered | _OWN_WAY or name in self._inside:
            result = func(*args, **kwargs)
        else:
            self._recording.at(name, tuple(self._inside)).count += 1
            self._inside.append(name)
            try:
                result = func(*args, **kwargs)
            finally:
                self._inside.pop()
        self._recording.remember(result)
        return result


def overload(func: Any) -> str:
    """The overload as native_functions.yaml names it; another namespace than aten stays in front: `add.Tensor`, `prims::sum`."""
    name, variant = str(func._schema.name).removeprefix("aten::"), func._schema.overload_name
    return f"{name}.{variant}" if variant else name


@functools.cache
def composite(func: Any) -> Any:
    """The key of an operator's composite kernel where it has no kernel for the CPU, else None."""
    name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if func._schema.name in _LEAVES or has(name, "CPU") or not hasattr(func, "_op_dk"):
        return None
    return next((getattr(torch._C.DispatchKey, key) for key in _COMPOSITE if has(name, key)), None)


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of an operator's arguments or results: schemas nest them in lists and tuples alone."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, (list, tuple)) else []


@contextmanager
def recorded(recording: Recording, phase: str, *, device: str = "cpu", entered: Iterable[str] = ()) -> Iterator[None]:
    """Record what runs inside as `phase`. `entered`: composite-implicit operators that the device to come has entries for.

    Attention takes its plain path (bmm, softmax) and oneDNN is off, since both are the CPU's own choices.
    """
    recording.phase = phase
    inside: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(_plain_attention())
        stack.enter_context(_Functions(recording, entered, inside))
        stack.enter_context(_Dispatched(recording, device, inside))
        yield


@contextmanager
def _plain_attention() -> Iterator[None]:
    cuda = torch.backends.cuda
    switches = [name for name in ("flash", "mem_efficient", "cudnn") if hasattr(cuda, f"enable_{name}_sdp")]
    before = {name: getattr(cuda, f"{name}_sdp_enabled")() for name in switches}
    try:
        for name in switches:
            getattr(cuda, f"enable_{name}_sdp")(False)
        yield
    finally:
        for name, enabled in before.items():
            getattr(cuda, f"enable_{name}_sdp")(enabled)
