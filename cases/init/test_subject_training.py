"""Checks of any model's training: a step repeats under its seed, and a run that was resumed takes the steps of one that was not."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches, deep, subjects, values
from conformance.incell.torchstate import seed_all
from conformance.instruments.assignments import assigned
from conformance.instruments.freshcopies import fresh_copies
from conformance.instruments.generalization import difference_of
from conformance.instruments.models import blame_first, run_as_it_is
from conformance.instruments.snapshots import tensors_of
from conformance.instruments.training import optimizer_of, step

Code = Callable[..., Any]
Observe = Callable[..., None]


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def step_under_the_seed(subject: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What is random in it comes from torch's seeded stream."""
    return step(subject, model, optimizer_of(subject, model), inputs)


def steps_with_noise_of_its_own(subject: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Noise on the weights, from a generator that was seeded by the clock."""
    generator = torch.Generator()
    generator.seed()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-2 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return step(subject, model, optimizer_of(subject, model), inputs)


#: XLA compiles a step as one program, which takes it minutes on a CPU.
@deep("xla")
@values
@subjects()
@catches(steps_with_noise_of_its_own, train=step_under_the_seed)
def test_subject_step_repeats(train: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject in training mode takes the same step again under the same seed: loss and every weight; observed is the loss.

    The notes on reproducibility in torch's documentation: generators of one's own are not seeded by torch.manual_seed. 1.13 to 2.15.
    """
    losses, after = [], []
    for _ in range(2):
        model = subject.build().to(device).train()
        seed_all(0, device.type)
        losses.append(train(subject, model, subject.inputs(device=device)))
        after.append(_weights(model))
    observe("loss", losses[0])
    differences = {name: difference_of(after[0][name], after[1][name], name) for name in after[0]}
    other = [told for told in (difference_of(losses[0], losses[1], "the loss"), *differences.values()) if told]
    assert not other, f"another step under the same seed: {other[0]}"


def restore_both(saved: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Weights, and what the optimizer remembers."""
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def restores_weights_alone(saved: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer begins anew."""
    model.load_state_dict(saved["model"])


def _through_a_file(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    written = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, written)
    written.seek(0)
    saved: dict[str, Any] = torch.load(written, map_location="cpu")
    return saved


@deep("xla")
@values
@subjects()
@catches(restores_weights_alone, restore=restore_both)
def test_subject_optimizer_round_trips(restore: Code, subject: Any, device: torch.device) -> None:
    """A subject whose training is resumed from a checkpoint of model and optimizer takes the step that it would have taken.

    pytorch/pytorch#2830: moments that are not restored change the next step in silence. Three steps, saved after the second. 1.13 to 2.15.
    """
    model, inputs = subject.build().to(device), subject.inputs(device=device)
    optimizer = optimizer_of(subject, model)
    for _ in range(2):
        step(subject, model, optimizer, inputs)
    saved = _through_a_file(model, optimizer)
    step(subject, model, optimizer, inputs)
    resumed = subject.rebuilt().to(device)
    later = optimizer_of(subject, resumed)
    restore(saved, resumed, later)
    step(subject, resumed, later, inputs)
    expected, got = _weights(model), _weights(resumed)
    other = [told for told in (difference_of(expected[name], got[name], name) for name in expected) if told]
    assert not other, f"the step after the checkpoint is another one: {other[0]}"


class KeepsARunningScale(nn.Module):
    """Beside the model, a running scale that training moves and that is a plain number."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.running = model, 1.0

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        answer = next(tensors_of(self.model(*inputs)))
        if self.training:
            self.running = 0.9 * self.running + 0.1 * float(answer.detach().float().abs().mean())
        return answer / self.running


@deep("xla")
@values
@subjects()
@catches(KeepsARunningScale, wrap=run_as_it_is)
def test_subject_resumes(wrap: Code, subject: Any, device: torch.device) -> None:
    """What two steps in training mode changed in a subject is in its checkpoint: loaded strictly into a fresh one it answers alike.

    Then the next step has the same loss under the same seed. A running mean that is a plain attribute, not a buffer, begins anew. Own
    observation, 2.13 and 2.15.
    """
    make, inputs = fresh_copies(lambda: wrap(subject.build()), device), subject.inputs(device=device)
    model = make().train()
    optimizer = optimizer_of(subject, model)
    with assigned() as lines:
        for at in range(2):
            seed_all(at, device.type)
            step(subject, model, optimizer, inputs)
    resumed = make()
    later = optimizer_of(subject, resumed)
    restore_both(_through_a_file(model, optimizer), resumed, later)
    with torch.no_grad():
        told = difference_of(model.eval()(*inputs), resumed(*inputs))
    told = told and f"its answer in eval mode after a strict load is another one: {told}"
    if not told:
        losses = []
        for each, its_optimizer in ((model, optimizer), (resumed, later)):
            seed_all(2, device.type)
            losses.append(step(subject, each.train(), its_optimizer, inputs))
        told = difference_of(losses[0], losses[1], "the loss of the step after the checkpoint")
    if told:
        error = AssertionError(told)
        blame_first(error, [lines.line(model, name) for name in lines.names(model) if name not in model.state_dict()])
        raise error
