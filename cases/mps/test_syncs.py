"""Waiting for the device: what makes the host read a number in the middle of a step, counted on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.guards import clip_grad_norm_
from conformance.incell import catches, values
from conformance.instruments.dispatching import recorded
from conformance.instruments.weights import uniform

Observe = Callable[..., None]
STEPS = 4


def _steps(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer, list[Tensor]]:
    model = nn.Linear(4, 3, device=device)
    batches = [uniform((5, 4), seed=step).to(device) for step in range(STEPS)]
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), batches


def train_and_log_once(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    """The running loss stays on the device; the host reads it at the end."""
    total = torch.zeros((), device=batches[0].device)
    for batch in batches:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(batches)


def logs_every_step(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    """`.item()` for a progress bar."""
    total = 0.0
    for batch in batches:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def stops_on_nan(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    """A branch on the device's numbers."""
    total = torch.zeros((), device=batches[0].device)
    for batch in batches:
        loss = model(batch).square().mean()
        if loss.isnan():
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(batches)


def copies_losses_to_the_host(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    """`.cpu()` waits as `.item()` does."""
    losses = []
    for batch in batches:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return float(torch.stack(losses).mean())


@values
@catches(logs_every_step, stops_on_nan, copies_losses_to_the_host, train=train_and_log_once)
def test_epoch_waits_once(train: Callable[..., float], device: torch.device, observe: Observe) -> None:
    """An epoch of four steps reads the device once, for the loss that it logs.

    meta-pytorch/torchtune#522, CodefyUI/CodefyUI#435 (6 of 10 ms a step on a Mac). 1.13 to 2.15.
    """
    with recorded(device) as seen:
        loss = train(*_steps(device))
    observe("waits", seen.count("sync"), better="lower")
    assert loss > 0
    assert seen.count("sync") <= 1, seen.of("sync")


def clips_if_norm_is_large(parameters: list[Tensor], max_norm: float) -> Tensor:
    """A branch on the norm."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    if norm > max_norm:
        for grad in grads:
            grad.mul_(max_norm / norm)
    return norm


def sums_norms_on_the_host(parameters: list[Tensor], max_norm: float) -> Tensor:
    """One wait a parameter."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = sum(grad.norm().item() ** 2 for grad in grads) ** 0.5
    for grad in grads:
        grad.mul_(min(1.0, max_norm / norm))
    return torch.tensor(norm)


def clip_natively(parameters: list[Tensor], max_norm: float) -> Tensor:
    """torch's own."""
    return nn.utils.clip_grad_norm_(parameters, max_norm)


def _check_clip_waits(clip: Callable[..., Tensor], device: torch.device, observe: Observe) -> None:
    parameters = [nn.Parameter(torch.zeros(3, device=device)) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 2.0)
    with recorded(device) as seen:
        norm = clip(parameters, 1.0)
    observe("waits", seen.count("sync"), better="lower")
    assert seen.of("sync") == []
    clipped = torch.stack([parameter.grad.cpu() for parameter in parameters if parameter.grad is not None])
    torch.testing.assert_close((norm.cpu(), clipped.norm()), (torch.tensor(6.0), torch.tensor(1.0)))


@values
@catches(clips_if_norm_is_large, sums_norms_on_the_host, clip=clip_grad_norm_)
def test_gradients_are_clipped_without_waiting(clip: Callable[..., Tensor], device: torch.device, observe: Observe) -> None:
    """Gradients are clipped to a norm that the host never reads.

    pytorch/pytorch#60691. Guard `clip_grad_norm_`, 1.13 to 2.15; needed on 2.0.
    """
    _check_clip_waits(clip, device, observe)


@values
@catches(clips_if_norm_is_large, sums_norms_on_the_host, clip=clip_natively)
def test_gradients_are_clipped_without_waiting_native(clip: Callable[..., Tensor], device: torch.device, observe: Observe) -> None:
    """`torch.nn.utils.clip_grad_norm_` does not read the norm.

    pytorch/pytorch#61042. Observed: right on 1.13, reads it on 2.0, right again since 2.1.
    """
    _check_clip_waits(clip, device, observe)


def hide_always(x: Tensor, hidden: Tensor) -> Tensor:
    """A mask of nothing changes nothing."""
    return x.masked_fill(hidden, 0.0)


def hides_if_any(x: Tensor, hidden: Tensor) -> Tensor:
    """Asks first."""
    return x.masked_fill(hidden, 0.0) if hidden.any() else x


def assigns_to_positions(x: Tensor, hidden: Tensor) -> Tensor:
    """The positions are counted first."""
    y = x.clone()
    y[hidden.nonzero(as_tuple=True)] = 0.0
    return y


@values
@catches(hides_if_any, assigns_to_positions, hide=hide_always)
def test_masking_asks_nothing(hide: Callable[..., Tensor], device: torch.device) -> None:
    """A mask is applied without asking whether or where it holds.

    facebookresearch/fairchem#2203. 1.13 to 2.15.
    """
    hidden = torch.tensor([True, False, False], device=device)
    with recorded(device) as seen:
        masked = hide(torch.ones(3, device=device), hidden)
    assert seen.of("sync") == []
    assert masked.tolist() == [0.0, 1.0, 1.0]


def ignore_in_the_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss leaves ignored labels out."""
    return functional.cross_entropy(logits, labels, ignore_index=-100)


def selects_labelled_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """A boolean index makes a tensor whose size the host must know."""
    known = labels != -100
    return functional.cross_entropy(logits[known], labels[known])


def divides_by_host_count(logits: Tensor, labels: Tensor) -> Tensor:
    """The count is read."""
    losses = functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
    return losses / int((labels != -100).sum())


@values
@catches(selects_labelled_rows, divides_by_host_count, loss=ignore_in_the_loss)
def test_ignored_labels_cost_no_wait(loss: Callable[..., Tensor], device: torch.device) -> None:
    """The loss over labelled positions alone is computed without reading how many there are.

    facebookresearch/fairchem#2203. 1.13 to 2.15.
    """
    logits, labels = uniform((4, 5)).to(device), torch.tensor([1, -100, 2, -100], device=device)
    with recorded(device) as seen:
        got = loss(logits, labels)
    assert seen.of("sync") == []
    expected = functional.cross_entropy(logits.cpu().double()[::2], labels.cpu()[::2])
    torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-5, atol=1e-6)


def repeat_with_known_size(x: Tensor, counts: Tensor, size: int) -> Tensor:
    """The size is said."""
    return x.repeat_interleave(counts, output_size=size)


def repeats_and_counts(x: Tensor, counts: Tensor, size: int) -> Tensor:
    """The sum of the counts is read."""
    del size
    return x.repeat_interleave(counts)


@values
@catches(repeats_and_counts, repeat=repeat_with_known_size)
def test_repeating_by_counts_reads_no_sum(repeat: Callable[..., Any], device: torch.device) -> None:
    """Rows are repeated by counts on the device, the total said by the caller.

    Observed on 1.13 to 2.15: without `output_size` the op needs the sum.
    """
    counts = torch.tensor([1, 2, 1], device=device)
    with recorded(device) as seen:
        repeated = repeat(torch.arange(3.0, device=device), counts, 4)
    assert seen.of("sync") == []
    assert repeated.tolist() == [0.0, 1.0, 1.0, 2.0]
