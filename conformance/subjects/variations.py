"""Variations of example inputs: other sizes along what varies, rows that are masked out, and tensors that are not contiguous."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from conformance.subjects.subject import Axes, Inputs

#: Makes one variation's arguments.
Maker = Callable[[], Inputs]


def infer_axes(example: Inputs) -> Axes:
    """What seems to vary in `example`: axis 0 of every argument of the first one's batch; then, of integers and of `(B, T, C)` floats,
    the length; of `(B, C, H, W)` floats, height and width. Eager code has the last word: see `accepted`.
    """
    tensors = [(position, each) for position, each in enumerate(example) if isinstance(each, Tensor) and each.dim()]
    if not tensors:
        return {}
    _, first = tensors[0]
    axes: Axes = {}
    for position, each in tensors:
        if each.size(0) == first.size(0):
            axes[position, 0] = "batch"
        for axis, name in _inner(first):
            if each.dim() > axis and each.size(axis) == first.size(axis) and each.dim() in (first.dim(), axis + 1):
                axes[position, axis] = name
    return axes


def _inner(first: Tensor) -> Sequence[tuple[int, str]]:
    if first.dim() == 4:
        return ((2, "height"), (3, "width"))
    if first.dim() == 3 or (first.dim() == 2 and not first.is_floating_point()):
        return ((1, "length"),)
    return ()


def sizes(name: str, example: int) -> list[int]:
    """Sizes to try along the axis called `name`: one, two, odd, a power of two and one, beyond the example; not the example's own."""
    wanted = [1, 2, 3] if name == "batch" else [1, 2, example - 1, example + 1, 17, 2 * example + 1]
    return [size for size in dict.fromkeys(wanted) if size > 0 and size != example]


def resized(example: Inputs, axes: Axes, wanted: Mapping[str, int]) -> Inputs:
    """`example` with the named axes of another size: its own elements repeated in turn, floats scaled a little so that rows differ."""
    made: list[Tensor] = []
    for position, each in enumerate(example):
        tensor = each
        for (at, axis), name in axes.items():
            if at == position and name in wanted:
                tensor = _repeated(tensor, axis, wanted[name])
        made.append(tensor)
    return tuple(made)


def _repeated(tensor: Tensor, axis: int, size: int) -> Tensor:
    held = tensor.size(axis)
    picked = tensor.index_select(axis, torch.arange(size, device=tensor.device) % held)
    if not tensor.is_floating_point() or size <= held:
        return picked
    shape = [size if at == axis else 1 for at in range(tensor.dim())]
    turn = (torch.arange(size, device=tensor.device) // held % 4).to(tensor.dtype).view(shape)
    return picked * (1 + 0.125 * turn)  # no drift: what grows along the axis would be the input's doing, not the model's


def of_example(example: Inputs, axes: Axes) -> dict[str, Maker]:
    """The example first, then one change at a time: sizes, a row that the mask hides, arguments that are not contiguous."""
    made: dict[str, Maker] = {"example": lambda: example}
    for name in dict.fromkeys(axes.values()):
        (position, axis) = next(place for place, of in axes.items() if of == name)
        for size in sizes(name, example[position].size(axis)):
            made[f"{name}{size}"] = _resizing(example, axes, {name: size})
    for position, each in enumerate(example):
        if _is_mask(each):
            made[f"masked_row_{position}"] = _masking(example, position)
    if any(isinstance(each, Tensor) and each.dim() > 1 for each in example):
        made["noncontiguous"] = lambda: tuple(_noncontiguous(each) for each in example)
    return made


def of_function(function: Callable[..., object]) -> dict[str, Maker]:
    """Variations of a function whose integer parameters are sizes: the defaults first, then each parameter changed alone."""
    made: dict[str, Maker] = {"example": lambda: as_inputs(function())}
    for name, parameter in inspect.signature(function).parameters.items():
        if isinstance(parameter.default, int) and not isinstance(parameter.default, bool):
            for size in sizes(name, parameter.default):
                made[f"{name}{size}"] = _calling(function, {name: size})
    return made


def function_axes(makers: Mapping[str, Maker], function: Callable[..., object]) -> Axes:
    """Which axes each size parameter of `function` sets, seen from what its variations change."""
    example, axes = next(iter(makers.values()))(), {}
    for name in inspect.signature(function).parameters:
        changed = [maker() for variation, maker in makers.items() if variation.rstrip("0123456789") == name]
        for position, tensor in enumerate(example):
            for axis in range(tensor.dim()):
                if any(other[position].dim() == tensor.dim() and other[position].size(axis) != tensor.size(axis) for other in changed):
                    axes.setdefault((position, axis), name)
    return axes


def as_inputs(value: object) -> Inputs:
    """Arguments in a tuple, however few they are."""
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)  # type: ignore[return-value]


def accepted(run: Callable[..., object], makers: Mapping[str, Maker]) -> dict[str, Maker]:
    """The variations that eager code takes, in order. The example must be one of them: what it raises gets out."""
    names = list(makers)
    with torch.no_grad():
        run(*makers[names[0]]())
        return {name: makers[name] for name in names if name == names[0] or _takes(run, makers[name])}


def _takes(run: Callable[..., object], maker: Maker) -> bool:
    try:
        run(*maker())
    except Exception:  # whatever the subject refuses a size with
        return False
    return True


def _is_mask(tensor: object) -> bool:
    if not isinstance(tensor, Tensor) or tensor.dim() < 2 or tensor.is_floating_point() or tensor.is_meta:
        return False
    return tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())


def _masking(example: Inputs, position: int) -> Maker:
    def mask() -> Inputs:
        masked = example[position].clone()
        masked[-1] = 0
        return (*example[:position], masked, *example[position + 1 :])

    return mask


def _resizing(example: Inputs, axes: Axes, wanted: dict[str, int]) -> Maker:
    return lambda: resized(example, axes, wanted)


def _calling(function: Callable[..., object], changed: dict[str, int]) -> Maker:
    return lambda: as_inputs(function(**changed))


def _noncontiguous(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.dim() < 2:
        return tensor
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)
