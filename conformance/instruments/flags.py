"""What a call has that decides whether MPS takes it, or takes it right: dtypes, layouts, sizes. A flag is a name and a detail.

Which flag matters for which operator and release is known outside (conformance/data/hazards.toml); here is only what can be seen of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from conformance.instruments.dispatching import RULES, WIDE, Call

#: Operators whose MPS kernels take their operands' dtypes to be one (pytorch/pytorch#196067, #154887; karpathy/nanochat#741).
_ONE_DTYPE = ("lerp", "addcdiv", "addcmul", "batch_norm")
_MATRIX = ("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "scaled_dot_product_attention")


def _float64(call: Call) -> Iterator[str]:
    """Of tensors that hold something: batch norm on the CPU makes an empty one for its own use."""
    for role, tensors in (("takes", call.inputs), ("makes", call.results)):
        for dtype in {tensor.dtype for tensor in tensors if tensor.dtype in WIDE and tensor.numel() and tensor.device.type == call.device}:
            yield f"{role} {str(dtype)[6:]}"


def _complex(call: Call) -> Iterator[str]:
    found = sorted({str(tensor.dtype)[6:] for tensor in (*call.inputs, *call.results) if tensor.is_complex()})
    if found:
        yield ", ".join(found)


def _mixed(call: Call) -> Iterator[str]:
    if any(part in call.name for part in _ONE_DTYPE):
        yield from RULES["mixed"](call)


def _layout(call: Call) -> Iterator[str]:
    if call.name in _MATRIX:
        for at, tensor in enumerate(call.inputs):
            if not tensor.is_contiguous():
                yield f"operand {at} has strides {tuple(tensor.stride())}"


def _weight_layout(call: Call) -> Iterator[str]:
    if call.name == "convolution" and not call.inputs[1].is_contiguous():
        yield f"strides {tuple(call.inputs[1].stride())}"


def _condition(call: Call) -> Iterator[str]:
    if call.name == "where" and call.inputs and not call.inputs[0].is_contiguous():
        yield f"strides {tuple(call.inputs[0].stride())}"


def _channels(call: Call) -> Iterator[str]:
    if call.name == "convolution":
        transposed, groups = bool(call.args[6]), int(call.args[8])
        channels = call.inputs[1].size(1) * groups if transposed else call.inputs[1].size(0)
        if channels > 1 << 16:
            yield f"{channels} output channels"


def _elements(call: Call) -> Iterator[str]:
    most = max((tensor.numel() for tensor in (*call.inputs, *call.results)), default=0)
    if most > 1 << 32:
        yield f"{most} elements"


def _rows(call: Call) -> Iterator[str]:
    if call.name in ("addmm", "linear") and call.results and call.results[0].numel() // call.results[0].size(-1) > 1 << 16:
        yield f"{call.results[0].numel() // call.results[0].size(-1)} rows"


def _rank5(call: Call) -> Iterator[str]:
    if call.name in ("sum", "cumsum", "cumprod") and call.inputs[0].dim() >= 5:
        yield f"{call.inputs[0].dim()} dimensions"


def _largest(call: Call) -> Iterator[str]:
    if call.name == "topk" and int(call.args[1]) > 16:
        yield f"k = {call.args[1]}"


def _sorted(call: Call) -> Iterator[str]:
    if call.name in ("sort", "argsort") and call.inputs[0].numel() > 1 << 22:
        yield f"{call.inputs[0].numel()} elements"


def _cubic_volume(call: Call) -> Iterator[str]:
    if call.name == "grid_sampler_3d" and call.args[2] == 2:
        yield "bicubic"


#: Flag of a dispatched operator -> what tells it, a detail each time.
OF_CALLS: dict[str, Callable[[Call], Iterator[str]]] = {
    "float64": _float64,
    "complex": _complex,
    "mixed_dtypes": _mixed,
    "inplace_noncontiguous": RULES["in_place_on_view"],
    "noncontiguous": _layout,
    "noncontiguous_weight": _weight_layout,
    "noncontiguous_condition": _condition,
    "rank": RULES["rank"],
    "rank5": _rank5,
    "int64": RULES["int64"],
    "uneven_pool": RULES["uneven_pool"],
    "channels": _channels,
    "elements": _elements,
    "rows": _rows,
    "k_over_16": _largest,
    "long_sort": _sorted,
    "cubic_volume": _cubic_volume,
}


def of_call(call: Call) -> Iterator[tuple[str, str]]:
    """The flags of a dispatched operator."""
    for name, rule in OF_CALLS.items():
        for detail in rule(call):
            yield name, detail


def of_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The flags of a torch function that takes a path of its own on MPS, seen before it decomposes."""
    if name == "scaled_dot_product_attention" and len(args) >= 3:
        yield from _attention(args, kwargs)
    elif name == "linear" and len(args) >= 2:
        if not args[1].is_contiguous():
            yield "noncontiguous_weight", f"strides {tuple(args[1].stride())}"
        if 0 in args[0].stride() and args[0].numel() > 1:
            yield "expanded", f"strides {tuple(args[0].stride())}"
    elif name == "lstm" and len(args) > 1 and isinstance(args[1], (tuple, list)) and args[1][0].size(-1) != args[1][1].size(-1):
        yield "projection", f"hidden size {args[1][0].size(-1)}, cell size {args[1][1].size(-1)}"


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    query, key, value = args[:3]
    mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
    dropout = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
    causal = args[5] if len(args) > 5 else kwargs.get("is_causal", False)
    if not all(tensor.is_contiguous() for tensor in (query, key, value)):
        yield "noncontiguous", f"query has strides {tuple(query.stride())}"
    if kwargs.get("enable_gqa"):
        yield "grouped", "enable_gqa" + (" with a mask" if mask is not None else "")
    if query.size(-1) != value.size(-1):
        yield "other_width", f"query {query.size(-1)}, value {value.size(-1)}"
    if causal and query.dtype in (torch.float16, torch.bfloat16):
        yield "causal_half", str(query.dtype)[6:]
    if dropout:
        yield "dropout", f"p = {dropout}"
