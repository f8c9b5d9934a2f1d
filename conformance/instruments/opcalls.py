"""Calls of ops: carried to another device or to float64, laid out anew, and watched for numbers that nobody can foretell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from conformance.instruments.layouts import rotated, sliced, transposed

WIDER = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
WIDER[torch.complex64] = torch.complex128
#: Ops that hand out memory which nobody wrote.
_ALLOCATING = frozenset(
    f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_")
)


@dataclass(frozen=True)
class Call:
    """An op with its arguments."""

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, op: Callable[..., Any], sample: Any) -> Call:
        """The call that a sample of OpInfo means."""
        return cls(op, (sample.input, *sample.args), dict(sample.kwargs))

    def mapped(self, change: Callable[[Any], Any]) -> Call:
        """The same call with each leaf of its arguments changed."""
        args, kwargs = tree_map(change, (self.args, self.kwargs))
        return Call(self.op, args, kwargs)

    def to(self, device: torch.device, *, wide: bool = False) -> Call:
        """A copy of the call there, wide floats in place of narrow ones if asked for; no tensor is shared with this one."""
        return self.mapped(lambda leaf: carried(leaf, device, wide=wide))

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return [leaf for leaf in tree_flatten((self.args, self.kwargs))[0] if isinstance(leaf, Tensor)]

    def __call__(self) -> Any:
        """The op's result."""
        return self.op(*self.args, **self.kwargs)


def carried(leaf: Any, device: torch.device, *, wide: bool) -> Any:
    """A tensor copied with its strides, its offset and all that its storage holds: some ops look behind the elements (as_strided)."""
    if isinstance(leaf, torch.device) or leaf == "cpu":
        return device
    if not isinstance(leaf, Tensor):
        return leaf
    dtype = WIDER.get(leaf.dtype, leaf.dtype) if wide else leaf.dtype
    leaf = leaf.detach()
    if leaf.layout is not torch.strided or leaf.is_conj() or leaf.is_neg():
        return leaf.to(device=device, dtype=dtype, copy=True)
    size = _stored(leaf)
    if leaf.is_contiguous() and size == leaf.numel():
        return leaf.to(device=device, dtype=dtype, copy=True)
    whole = leaf.as_strided((size,), (1,), 0).to(device=device, dtype=dtype, copy=True)
    return whole.as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())


def _stored(x: Tensor) -> int:
    """How many elements its storage holds."""
    return x.untyped_storage().nbytes() // x.element_size() if hasattr(x, "untyped_storage") else x.storage().size()


def _expanded(x: Tensor) -> Tensor:
    """Its first row again and again, from the same memory: stride 0."""
    return x[:1].expand_as(x)


def _with_nan(x: Tensor) -> Tensor:
    """Its first and its middle element are no numbers."""
    if not x.is_floating_point() or x.numel() < 2:
        return x
    holed = x.clone()
    holed.view(-1)[[0, x.numel() // 2]] = float("nan")
    return holed


def _is_plain(x: Any) -> bool:
    return isinstance(x, Tensor) and x.layout is torch.strided and x.is_contiguous() and _stored(x) == x.numel()


@dataclass(frozen=True)
class Variant:
    """A way to call an op that must change no number: `lay_out` gives its tensors other strides, `fill` other numbers first."""

    name: str
    #: Tensors of fewer dimensions are left alone.
    dimensions: int = 0
    fill: Callable[[Tensor], Tensor] | None = None
    lay_out: Callable[[Tensor], Tensor] | None = None
    in_place: bool = False

    def applies(self, call: Call) -> bool:
        """Whether it makes a difference to this call."""
        return any(self._takes(leaf) for leaf in call.tensors) if self.dimensions or self.fill else True

    def _takes(self, leaf: Any) -> bool:
        return _is_plain(leaf) and leaf.dim() >= self.dimensions and leaf.numel() > 1

    def filled(self, call: Call) -> Call:
        """The call with the numbers that this variant is about."""
        fill = self.fill
        return call if fill is None else call.mapped(lambda leaf: fill(leaf).contiguous() if self._takes(leaf) else leaf)

    def laid_out(self, call: Call) -> Call:
        """The call with its tensors in the layout that this variant is about."""
        lay_out = self.lay_out
        return call if lay_out is None else call.mapped(lambda leaf: lay_out(leaf) if self._takes(leaf) else leaf)


PLAIN = Variant("plain")
TRANSPOSED = Variant("transposed", 2, lay_out=transposed)
IN_PLACE = Variant("transposed, in place", 2, lay_out=transposed, in_place=True)
#: Variants of the fast sweep, then all. Expanding the rows of a matrix would make it singular, so that takes three dimensions.
FEW = (PLAIN, TRANSPOSED, IN_PLACE)
ALL = (
    *FEW,
    Variant("permuted", 3, lay_out=rotated),
    Variant("sliced", 1, lay_out=sliced),
    Variant("expanded", 3, fill=_expanded, lay_out=_expanded),
    Variant("NaN", 1, fill=_with_nan),
    Variant("in place", 0, in_place=True),
    Variant("sliced, in place", 1, lay_out=sliced, in_place=True),
    Variant("NaN, in place", 1, fill=_with_nan, in_place=True),
)


class Watch(TorchDispatchMode):
    """Notes the ops of a call on the CPU: whether one draws random numbers, which memory nobody wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.tags: set[Any] = set()
        #: Whether one of them drew random numbers: attention without dropout is tagged as random too, and leaves the generator alone.
        self.draws = False
        self._writers: dict[int, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name
        may_draw = torch.Tag.nondeterministic_seeded in func.tags
        state = torch.get_rng_state() if may_draw else None
        result = func(*args, **kwargs)
        self.names.add(name)
        self.tags.update(func.tags)
        self.draws = self.draws or (state is not None and not torch.equal(state, torch.get_rng_state()))
        given = {_address(leaf) for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)}
        made = {_address(leaf) for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)}
        for address in given | made if func._schema.is_mutable else made - given:
            self._writers[address] = name
        return result

    def is_unwritten(self, x: Tensor) -> bool:
        """Whether the memory of a result came from an allocation, and no op wrote there since."""
        return self._writers.get(_address(x), "") in _ALLOCATING


def _address(x: Tensor) -> int:
    if x.layout is not torch.strided:
        return 0
    return x.untyped_storage().data_ptr() if hasattr(x, "untyped_storage") else x.storage().data_ptr()
