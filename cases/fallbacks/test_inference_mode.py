"""Inference mode: tensors that stay marked, errors that are recognised by their text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import Twin, catches

Recognise = Callable[[Exception], bool]


def made_in_inference(device: torch.device) -> Tensor:
    """A tensor that no backward may save."""
    with torch.inference_mode():
        return torch.ones(2, device=device)


def errors(device: torch.device) -> tuple[Exception, Exception]:
    """The refusal of an inference tensor, and another RuntimeError of the same call."""
    with pytest.raises(RuntimeError) as refusal:
        torch.ones(2, device=device, requires_grad=True) * made_in_inference(device)
    with pytest.raises(RuntimeError) as other:
        torch.ones(2, device=device) * torch.ones(3, device=device)
    return refusal.value, other.value


def by_its_beginning(error: Exception) -> bool:
    """What never changed."""
    return str(error).startswith("Inference tensors cannot be saved for backward")


def by_its_advice(error: Exception) -> bool:
    """The second sentence."""
    return "To work around you can make a clone" in str(error)


def by_its_class(error: Exception) -> bool:
    """Any RuntimeError."""
    return isinstance(error, RuntimeError)


@catches(by_its_class, recognise=by_its_beginning)
def test_refusal_is_recognised(recognise: Recognise, device: torch.device) -> None:
    """The refusal of an inference tensor is told from other errors by how it begins.

    Dao-AILab/flash-attention#299 (the text). 1.13 to 2.15.
    """
    refusal, other = errors(device)
    assert recognise(refusal)
    assert not recognise(other)


def test_refusal_by_its_advice_native(device: torch.device) -> None:
    """The refusal of an inference tensor is told by the advice that it gives.

    Dao-AILab/flash-attention#299. Right from 1.13 to 2.8; the advice has other words since 2.9.
    """
    assert by_its_advice(errors(device)[0])


def clone_it(tensor: Tensor) -> Tensor:
    """A copy, made outside."""
    return tensor.clone()


def detaches_it(tensor: Tensor) -> Tensor:
    """Still the same memory, and the same mark."""
    return tensor.detach()


def moves_it_nowhere(tensor: Tensor) -> Tensor:
    """`.to()` of where it is gives the tensor itself."""
    return tensor.to(tensor.device, tensor.dtype)


def clones_inside(tensor: Tensor) -> Tensor:
    """A copy, made in inference mode."""
    with torch.inference_mode():
        return tensor.clone()


@catches(Twin(detaches_it, "raises"), Twin(moves_it_nowhere, "raises"), Twin(clones_inside, "raises"), free=clone_it)
def test_clone_can_train(free: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """A clone, made outside, of what inference mode made takes part in training.

    Dao-AILab/flash-attention#299. 1.13 to 2.15.
    """
    weight = torch.ones(2, device=device, requires_grad=True)
    (weight * free(made_in_inference(device))).sum().backward()
    assert weight.grad is not None


def build_then_infer() -> nn.Linear:
    """Built outside."""
    return nn.Linear(2, 2)


def builds_inside() -> nn.Linear:
    """Built while evaluating, as a cache of models does."""
    with torch.inference_mode():
        return nn.Linear(2, 2)


@catches(builds_inside, build=build_then_infer)
def test_parameters_are_no_inference_tensors(build: Callable[[], nn.Linear], device: torch.device) -> None:
    """A module that is to train is built outside of inference mode: none of its parameters is marked.

    Observed here: one that was built inside says that it needs gradients, and only fails where a backward saves a weight.
    1.13 to 2.15.
    """
    module = build().to(device)
    with torch.inference_mode():
        module(torch.ones(1, 2, device=device))
    assert not any(parameter.is_inference() for parameter in module.parameters())


def grow_in_no_grad() -> torch.no_grad:
    """Eval without gradients that leaves no mark."""
    return torch.no_grad()


def grows_in_inference() -> torch.inference_mode:
    """The faster block."""
    return torch.inference_mode()


@catches(Twin(grows_in_inference, "raises"), block=grow_in_no_grad)
def test_cache_written_in_eval_can_be_written_in_training(block: Callable[[], torch.no_grad], device: torch.device) -> None:
    """A buffer that is made during evaluation under `no_grad` can be written in place afterwards.

    Dao-AILab/flash-attention#299. 1.13 to 2.15.
    """
    with block():
        cache = torch.zeros(2, device=device)
    cache.add_(1.0)
    assert cache.shape == (2,)
