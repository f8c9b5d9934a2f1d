"""Checks of what using a model leaves: its weights as they were, answers that stay, and weights that are loaded afterwards in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches, subjects, values
from conformance.instruments.assignments import assigned
from conformance.instruments.bits import same_bits
from conformance.instruments.generalization import difference_of
from conformance.instruments.models import AsItIs, blame_first, run_as_it_is
from conformance.instruments.snapshots import tensors_of

Code = Callable[..., Any]


class RenormalisesItsWeights(AsItIs):
    """Divides a weight by its largest element at each call, in place."""

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.div_(2.0 * parameter.abs().max().clamp(min=1e-6))
        return super().forward(*inputs)


class AnswersIntoKeptMemory(AsItIs):
    """Writes each answer of a shape where the last one was."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.kept: dict[torch.Size, Tensor] = {}

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        got = next(tensors_of(super().forward(*inputs)))
        self.kept.setdefault(got.shape, torch.empty_like(got)).copy_(got.detach() + len(self.kept) + sum(x.double().sum() for x in inputs))
        return self.kept[got.shape]


class KeepsWhatItMadeOfWeights(AsItIs):
    """A sum of its weights, made at the first call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.made: Any = None

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        if self.made is None:
            self.made = sum(parameter.detach().sum() for parameter in self.model.parameters())
        return next(tensors_of(super().forward(*inputs))) + self.made


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@values
@subjects()
@catches(RenormalisesItsWeights, AnswersIntoKeptMemory, wrap=run_as_it_is)
def test_subject_leaves_weights_and_answers(wrap: Code, subject: Any, device: torch.device) -> None:
    """A subject in eval mode changes no weight of its own, and no answer that it gave before.

    Own observation: weights that a forward normalises in place, and an answer in memory that the next call writes to. 1.13, 2.13, 2.15.
    """
    model = wrap(subject.build()).to(device).eval()
    before = _weights(model)
    with torch.no_grad(), assigned() as lines:
        first = list(tensors_of(model(*subject.inputs(device=device))))
        held = [tensor.clone() for tensor in first]
        for inputs in subject.all_inputs(device).values():
            model(*(x.flip(0) if x.dim() else x for x in inputs))
    changed = [name for name, weight in _weights(model).items() if not same_bits(weight, before[name])]
    if changed:
        error = AssertionError(f"answering changed {', '.join(changed[:4])}")
        blame_first(error, [lines.line(model, name) for name in changed])
        raise error
    moved = [index for index, (one, other) in enumerate(zip(first, held)) if not same_bits(one, other)]
    assert not moved, f"answer {moved[0]} of the first call changed at a later one: its memory is the model's"


@values
@subjects()
@catches(KeepsWhatItMadeOfWeights, wrap=run_as_it_is)
def test_subject_loads_after_use(wrap: Code, subject: Any, device: torch.device) -> None:
    """A subject that has answered, and is then given other weights, answers as a fresh one with those weights does.

    Own observation: a product or a norm of weights that is kept from the first call. The other weights are halves. 1.13, 2.13, 2.15.
    """
    used, fresh = wrap(subject.build()).to(device).eval(), wrap(subject.build()).to(device).eval()
    inputs = subject.inputs(device=device)
    with torch.no_grad(), assigned() as lines:
        used(*inputs)
    halved = wrap(subject.build()).to(device)
    with torch.no_grad():
        for parameter in halved.parameters():
            parameter.div_(2)
        for model in (used, fresh):
            model.load_state_dict(halved.state_dict())
        other = difference_of(fresh(*inputs), used(*inputs))
    if other:
        error = AssertionError(f"with weights that were loaded after its first answer it answers otherwise than a fresh one: {other}")
        made = sorted({*vars(used), *(name for name, _ in used.named_buffers())})
        blame_first(error, [lines.line(used, name) for name in made])
        raise error
