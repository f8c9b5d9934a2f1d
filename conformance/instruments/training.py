"""One step of training a subject: its own loss and optimizer where it brings them, else the mean square of its answer and AdamW."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.instruments.snapshots import tensors_of


def loss_of(subject: Any, answer: Any) -> Tensor:
    """The scalar to train by. Skips where nothing in `answer` floats; raises TypeError where the subject's own loss is no scalar."""
    if subject.loss is not None:
        loss = subject.loss(answer)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"the loss of {subject.alias} must be a tensor of one number, is {_described(loss)}")
        return loss.reshape(())
    floats = [tensor for tensor in tensors_of(answer) if tensor.is_floating_point()]
    if not floats:
        pytest.skip("nothing in the answer floats, so there is nothing to train by")
    return torch.stack([tensor.pow(2).mean() for tensor in floats]).sum()


def optimizer_of(subject: Any, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of the parameters that want a gradient. Skips where none does; raises TypeError for what is no optimizer."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        pytest.skip("no parameter wants a gradient")
    if subject.optimizer is None:
        return torch.optim.AdamW(parameters, lr=1e-3)
    made = subject.optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"the optimizer of {subject.alias} must be a torch.optim.Optimizer, is {type(made).__name__}")
    return made


def gradients(subject: Any, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """One backward pass; returns the loss, detached. Skips where the loss depends on no parameter."""
    loss = loss_of(subject, model(*inputs))
    if not loss.requires_grad:
        pytest.skip("the loss depends on no parameter")
    loss.backward()
    return loss.detach()


def step(subject: Any, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: tuple[Tensor, ...]) -> Tensor:
    """One step from cleared gradients; returns the loss before it, detached."""
    optimizer.zero_grad()
    loss = gradients(subject, model, inputs)
    optimizer.step()
    return loss


def _described(value: Any) -> str:
    return f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
