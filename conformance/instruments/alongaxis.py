"""How a model's rounding error goes along an axis of its input.

A position that was counted in low precision is further off the later it is: bfloat16 holds no odd number above 256, and a frequency that
it rounded is off by 2**-9 of itself, which the position multiplies (EleutherAI/gpt-neox#1003). All other rounding is alike everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conformance.instruments.dtypes import default_dtype
from conformance.instruments.snapshots import tensors_of

#: The axis is looked at in so many stretches of equal length.
STRETCHES = 8

#: What each part of a model was given and what it gave, in the order in which parts returned: dotted name -> both.
Answers = dict[str, tuple[list[Tensor], list[Tensor]]]


@dataclass(frozen=True)
class Errors:
    """Relative errors (root mean square) of what the part `name` gives, by stretch of the axis; `given` are those of what it was given."""

    name: str
    part: nn.Module
    by_stretch: tuple[float, ...]
    given: tuple[tuple[float, ...], ...] = ()

    def growth(self, dtype: torch.dtype) -> float:
        """The largest error of the later half over that of the first stretch, which counts as 1/8 of the dtype's epsilon at the least."""
        return _growth(self.by_stretch, dtype)

    def grow(self, dtype: torch.dtype, most: float) -> bool:
        """Whether they grow by more than `most`, to more than one rounding is.

        torch's own layers count no positions: theirs must have been given something whose errors grow as well. What is large beside its
        spread, which a norm takes away, is off by more where it is larger.
        """
        if self.of_torch and not any(_growth(each, dtype) > most for each in self.given):
            return False
        return self.growth(dtype) > most and max(self.by_stretch) > torch.finfo(dtype).eps

    @property
    def of_torch(self) -> bool:
        """Whether the part is one of torch's own layers."""
        return type(self.part).__module__.startswith("torch.")

    @property
    def line(self) -> dict[str, Any]:
        """Where the part's forward begins, as a line to blame; empty where it has no source."""
        forward = inspect.unwrap(type(self.part).forward)
        try:
            source, line = inspect.getsourcelines(forward)
        except (OSError, TypeError):
            return {}
        begin = next((at for at, text in enumerate(source) if text.lstrip().startswith("def ")), 0)  # decorators go before
        return {"file": inspect.getsourcefile(forward), "line": line + begin, "source": source[begin].strip()}


def _growth(by_stretch: tuple[float, ...], dtype: torch.dtype) -> float:
    return max(by_stretch[STRETCHES // 2 :]) / max(by_stretch[0], torch.finfo(dtype).eps / 8)


def errors(build: Callable[[], nn.Module], inputs: Sequence[Tensor], dtype: torch.dtype, device: torch.device, size: int) -> list[Errors]:
    """The errors of each part of `build()`, cast to `dtype` on `device`, whose answer has an axis of `size`; parts in the order in which
    they return.

    The reference is the model on the CPU with the weights and the inputs that the cast left and its own constants, in float64 where it
    takes that.
    """
    low = build().to(dtype)
    inputs = [each.to(dtype).to(each.dtype) if each.is_floating_point() else each for each in inputs]
    with torch.no_grad():
        try:
            expected = _answers(_with_weights(build(), low), inputs, torch.float64)
        except Exception:  # an operator that float64 has no kernel of
            expected = _answers(_with_weights(build(), low), inputs, torch.float32)
        got = _answers(low.to(device), [each.to(device) for each in inputs], dtype)
    return list(_compared(low, expected, got, size))


def _with_weights(model: nn.Module, rounded: nn.Module) -> nn.Module:
    for own, other in zip(model.parameters(), rounded.parameters()):
        own.copy_(other)
    return model


def _answers(model: nn.Module, inputs: Sequence[Tensor], dtype: torch.dtype) -> Answers:
    """What each part of the model was given, and gave, in `dtype` when it was called first."""
    found: Answers = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_part: nn.Module, given: Any, output: Any) -> None:
            if name not in found:
                found[name] = _numbers(given), _numbers([each for each in tensors_of(output) if each.is_floating_point()])

        return hook

    for name, part in model.named_modules():
        part.register_forward_hook(keep(name))
    with default_dtype(torch.float64 if dtype == torch.float64 else torch.get_default_dtype()):
        model.to(dtype)(*(each.to(dtype) if each.is_floating_point() else each for each in inputs))
    return found


def _numbers(values: Any) -> list[Tensor]:
    """Integers too: a part may be given positions to look up. Cloned, since what was given may be written into later."""
    return [each.detach().cpu().double().clone() for each in tensors_of(values) if not each.is_complex()]


def _compared(model: nn.Module, expected: Answers, got: Answers, size: int) -> Iterator[Errors]:
    parts = dict(model.named_modules())
    for name, (given, answers) in expected.items():
        low_given, low_answers = got.get(name, ([], []))
        before = tuple(_along(given, low_given, size))
        for by_stretch in _along(answers, low_answers, size):
            yield Errors(name or type(model).__name__, parts[name], by_stretch, before)


def _along(expected: list[Tensor], got: list[Tensor], size: int) -> Iterator[tuple[float, ...]]:
    """The errors, by stretch, of each of `got` that has an axis of `size`."""
    for exact, rounded in zip(expected, got):
        axis = next((at for at, length in enumerate(exact.shape) if length == size), None)
        if axis is not None and exact.shape == rounded.shape:
            yield _by_stretch(exact.movedim(axis, 0), rounded.movedim(axis, 0))


def _by_stretch(exact: Tensor, rounded: Tensor) -> tuple[float, ...]:
    """Both `(size, ...)`; elements that are not finite are left out."""
    finite = exact.isfinite() & rounded.isfinite()
    apart, scale = (torch.where(finite, each, torch.zeros_like(each)) for each in (rounded - exact, exact))
    return tuple(float(a.norm() / s.norm().clamp_min(1e-12)) for a, s in zip(_stretches(apart), _stretches(scale)))


def _stretches(tensor: Tensor) -> Iterator[Tensor]:
    """`tensor` cut along its first axis into equal stretches; what is left over goes."""
    length = tensor.size(0) // STRETCHES
    return (tensor[length * at : length * (at + 1)] for at in range(STRETCHES))
