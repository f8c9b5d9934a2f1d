"""Fourteen silent faults that MPS really had, emulated on the CPU: a mode answers for one op as the broken kernel did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.instruments.layouts import in_storage_order

Kernel = Callable[..., Any]


class Dispatched(TorchDispatchMode):
    """Answers for ops below autograd: `kernels` by the op's name, each with the right kernel as its first argument."""

    def __init__(self, **kernels: Kernel) -> None:
        super().__init__()
        self.kernels = kernels

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        broken = self.kernels.get(func._schema.name.partition("::")[2])
        return func(*args, **(kwargs or {})) if broken is None else broken(func, *args, **(kwargs or {}))


class Called(TorchFunctionMode):
    """Answers for functions that are one kernel on MPS and several on the CPU (linear, attention, convolution)."""

    def __init__(self, kernels: dict[Any, Kernel]) -> None:
        super().__init__()
        self.kernels = kernels

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        broken = self.kernels.get(func)
        return func(*args, **(kwargs or {})) if broken is None else broken(func, *args, **(kwargs or {}))


def _lost_update(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What is not contiguous is worked on in a copy, which is not copied back."""
    if x.is_contiguous():
        return func(x, *args, **kwargs)
    func(x.contiguous(), *args, **kwargs)
    return x


def _where(func: Any, condition: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return func(in_storage_order(condition), *args, **kwargs)


def _linear(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return func(in_storage_order(x), *args, **kwargs)


def _without_nan(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if not x.is_floating_point():
        return func(x, *args, **kwargs)
    args = tuple(other.nan_to_num(float("-inf")) if isinstance(other, Tensor) else other for other in args)
    return func(torch.where(x.isnan(), torch.full_like(x, float("-inf")), x), *args, **kwargs)


def _halves(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Words of 64 bits are taken for words of 32, of which there seem to be half as many."""
    if x.dtype is not torch.int64 or x.dim() == 0:
        return func(x, *args, **kwargs)
    words = x.contiguous().view(torch.int32)[..., : x.size(-1)]
    return func(words.to(torch.int64), *args, **kwargs)


def _convolution(func: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return func(x, in_storage_order(weight), *args, **kwargs)


def _attention(func: Any, *heads: Tensor, **kwargs: Any) -> Tensor:
    return func(*(in_storage_order(x) for x in heads[:3]), *heads[3:], **kwargs)


def _sum(func: Any, x: Tensor, dims: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    """A kernel of four dimensions: of five the last counts as the one before."""
    return func(x, [dim % 4 if x.dim() == 5 else dim for dim in dims] if dims else dims, *args, **kwargs)


def _topk(func: Any, x: Tensor, k: int, *args: Any, **kwargs: Any) -> Any:
    values, indices = func(x, k, *args, **kwargs)
    return values.index_fill(-1, torch.arange(min(k, 16), k), 0.0), indices


def _lerp(func: Any, x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """The bits of a float32 weight are read as if they were of the target's dtype."""
    if not isinstance(weight, Tensor) or weight.dtype == x.dtype or x.dtype not in (torch.float16, torch.bfloat16):
        return func(x, end, weight)
    return func(x, end, weight.reshape(1).view(x.dtype)[0].float())


def _many_channels(func: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    y = func(x, weight, *args, **kwargs)
    y[:, 2**16 :] = 0
    return y


def _many_rows(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    y = func(x, *args, **kwargs)
    if x.dim() == 3 and x.size(0) > 2**16:
        y[2**16 :] = y[: y.size(0) - 2**16]
    return y


def _sort(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Blocks of 2**22 are sorted and never merged."""
    if x.numel() <= 2**22:
        return func(x, *args, **kwargs)
    parts = [func(block, *args, **kwargs) for block in x.split(2**22)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] + 2**22 * at for at, part in enumerate(parts)])


LINEAR, ATTENTION = functional.linear, getattr(functional, "scaled_dot_product_attention", None)

#: Issue -> the mode that does as MPS did. The first seven are found by the sweep of an op, the others by a case of their own.
FAULTS: dict[str, Callable[[], Any]] = {
    "#118115 addcdiv_, addcmul_": lambda: Dispatched(addcdiv_=_lost_update, addcmul_=_lost_update),
    "#165257 normal_, uniform_": lambda: Dispatched(normal_=_lost_update, uniform_=_lost_update, bernoulli_=_lost_update),
    "#150967 where": lambda: Dispatched(where=_where),
    "#162730 linear": lambda: Called({LINEAR: _linear}),
    "#130295 max and NaN": lambda: Dispatched(max=_without_nan, amax=_without_nan, maximum=_without_nan, argmax=_without_nan),
    "#90273 max of int64": lambda: Dispatched(max=_halves, amax=_halves, argmax=_halves),
    "#192212 conv2d": lambda: Dispatched(convolution=_convolution),
    "#163597 attention": lambda: Called({ATTENTION: _attention}),
    "#132732 sum in 5-D": lambda: Dispatched(sum=_sum),
    "#78915 topk": lambda: Dispatched(topk=_topk),
    "#196067 lerp_": lambda: Dispatched(lerp_=_lerp),
    "#129207 channels": lambda: Dispatched(convolution=_many_channels),
    "#189495 rows": lambda: Called({LINEAR: _many_rows}),
    "#183885 argsort": lambda: Dispatched(sort=_sort),
}
