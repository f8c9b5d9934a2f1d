"""Checks of what any model remembers: neither earlier inputs nor an earlier dtype may show in what it answers now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, dtypes, subjects, values
from conformance.instruments.assignments import assigned
from conformance.instruments.freshcopies import fresh_copies
from conformance.instruments.generalization import difference_of
from conformance.instruments.models import blame_first, run_as_it_is
from conformance.instruments.snapshots import OF_MODULES, state_of, tensors_of

Code = Callable[..., Any]
Observe = Callable[..., None]

#: So many of the attributes that earlier inputs changed are named.
MOST = 4
#: Of a bfloat16 answer, relative to its largest element, rounding in another order takes less.
MOST_APART = 0.1


class RemembersTheLongest(nn.Module):
    """Beside the model, a scale that the largest input so far has set, as dynamic NTK does that never goes back."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.longest = model, 0

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        self.longest = max(self.longest, sum(x.numel() for x in inputs))
        return next(tensors_of(self.model(*inputs))) * self.longest


class KeepsTheFirstOfAShape(nn.Module):
    """Beside the model, a bias from its input that is kept as long as its shape fits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.kept = model, {}

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        if inputs[0].dim() not in self.kept:
            self.kept[inputs[0].dim()] = float(inputs[0].numel())
        return next(tensors_of(self.model(*inputs))) + self.kept[inputs[0].dim()]


def _by_elements(subject: Any) -> list[str]:
    return sorted(subject.variations, key=lambda name: sum(x.numel() for x in subject.inputs(name)))


def _changed(fresh: nn.Module, used: nn.Module) -> list[str]:
    """What the two hold otherwise."""
    before, after = state_of(fresh), state_of(used)
    return [name.lstrip(".") for name in after if difference_of(before.get(name), after[name])]


@values
@subjects()
@catches(RemembersTheLongest, KeepsTheFirstOfAShape, wrap=run_as_it_is)
def test_subject_forgets_its_inputs(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject that has seen other inputs answers each as a fresh copy does: its variations from small to large, and back.

    huggingface/transformers#25306: a long prompt changed the answer to short ones for good. A mask that is kept while its shape fits
    is of the kind. Observed is what shows of earlier inputs in the model. 2.13 and 2.15.
    """
    make, names = fresh_copies(lambda: wrap(subject.build()), device), _by_elements(subject)
    used = make()
    with torch.no_grad(), assigned() as lines:
        for at, name in enumerate([*names, *reversed(names)]):
            fresh = make()
            expected, got = fresh(*subject.inputs(name, device)), used(*subject.inputs(name, device))
            difference = difference_of(expected, got)
            if difference:
                kept = _changed(fresh, used)
                observe("remembered", ", ".join(kept[:MOST]) or "nothing that the model holds")
                behind = f"after {at} other inputs variation {name!r} is answered otherwise than by a fresh copy"
                error = AssertionError(f"{behind}: {difference}; it remembers {', '.join(kept[:MOST]) or 'outside itself'}")
                blame_first(error, [lines.line(used, each) for each in kept])
                raise error
    observe("remembered", "nothing that shows")


def cast_after_use(model: nn.Module, dtype: torch.dtype, inputs: tuple[Tensor, ...]) -> nn.Module:
    """An answer, then the cast."""
    model(*inputs)
    return model.to(dtype)


class KeepsATable(nn.Module):
    """Beside the model, a constant that is made at the first call, in the dtype of that call, and is no buffer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.tables = model, {}

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        answer = next(tensors_of(self.model(*inputs)))
        return answer * self.tables.setdefault("scale", torch.ones(1, dtype=answer.dtype, device=answer.device))


def keeps_a_table(model: nn.Module, dtype: torch.dtype, inputs: tuple[Tensor, ...]) -> nn.Module:
    """What the first answer left is not cast, and promotes what it meets."""
    return cast_after_use(KeepsATable(model), dtype, inputs)


def _cast(inputs: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def _floats(answer: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_of(answer) if tensor.is_floating_point()]


def _apart(one: Tensor, other: Tensor) -> float:
    """Relative to the largest element; what is not finite in both is left out."""
    both = one.isfinite() & other.isfinite()
    apart, scale = (one.double() - other.double())[both].abs(), one[both].double().abs()
    return float(apart.max() / scale.max().clamp_min(1e-6)) if apart.numel() else 0.0


@values
@subjects()
@dtypes("bfloat16")
@catches(keeps_a_table, cast=cast_after_use)
def test_subject_casts_after_use(cast: Code, subject: Any, dtype: torch.dtype, device: torch.device, observe: Observe) -> None:
    """A subject that has answered and is cast to bfloat16 answers as one that is cast at once: no table of the first answer is left wide.

    Own observation, 2.13 and 2.15: a dict of tables by length alone is unknown to `model.to()`, which casts parameters and buffers.
    """
    inputs = subject.inputs(device=device)
    lower, make = _cast(inputs, dtype), fresh_copies(subject.build, device)
    with torch.no_grad():
        try:
            expected = _floats(make().to(dtype)(*lower))
        except Exception as error:  # what a fresh one refuses is the affair of init.subject_casts
            pytest.skip(f"a fresh copy refuses {dtype}: {type(error).__name__}")
        used = make()
        with assigned() as lines:
            used = cast(used, dtype, inputs)
            try:
                _check_alike(expected, _floats(used(*lower)), observe)
            except Exception as error:
                blame_first(error, [lines.line(used, name) for name in _of_another_dtype(used, dtype)])
                raise


def _check_alike(expected: list[Tensor], got: list[Tensor], observe: Observe) -> None:
    apart = max((_apart(one, other) for one, other in zip(expected, got)), default=0.0)
    observe("relative_error", apart, better="lower")
    dtypes = [[str(each.dtype) for each in answers] for answers in (got, expected)]
    assert dtypes[0] == dtypes[1], f"answers in {', '.join(dtypes[0])} after the cast, a fresh copy in {', '.join(dtypes[1])}"
    assert apart < MOST_APART, f"off by {apart:.2g} of the largest element from a fresh copy that was cast"


def _of_another_dtype(model: nn.Module, dtype: torch.dtype) -> list[str]:
    """Dotted names of plain attributes that hold floats of another dtype."""
    found = []
    for prefix, part in model.named_modules():
        own = {name: value for name, value in vars(part).items() if name not in OF_MODULES}
        found += [f"{prefix}.{name}".lstrip(".") for name, value in own.items() if any(each.dtype != dtype for each in _floats(value))]
    return found
