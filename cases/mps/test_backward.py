"""Gradients that came out wrong in silence while the forward was right, held against float64 on the host."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.incell import catches, values
from conformance.instruments.layouts import in_storage_order
from conformance.instruments.weights import uniform

Gradients = Callable[..., "list[Tensor]"]


def root_of_what_is_positive(x: Tensor) -> Tensor:
    """The branch that is not taken gets a harmless number."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def roots_and_chooses(x: Tensor) -> Tensor:
    """The branch that is not taken still has a gradient: zero times infinity."""
    return torch.where(x > 0, x.sqrt(), 0.0)


@values
@catches(roots_and_chooses, root=root_of_what_is_positive)
def test_branch_not_taken_gives_no_nan(root: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """The gradient through `where` is finite where the branch that is not taken has none.

    pytorch/pytorch#68425, pytorch/pytorch#187297. 1.13 to 2.15.
    """
    x = torch.tensor([-1.0, 0.0, 4.0], device=device, requires_grad=True)
    root(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.25]


def normalise_frozen_input(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """As torch has it: the input needs no gradient, the parameters do."""
    out = functional.layer_norm(x, (x.size(-1),), weight, bias)
    return list(torch.autograd.grad(out.square().sum(), (weight, bias)))


def skips_parameters(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """Where the input needs none, none is computed, and what comes is whatever memory held."""
    out = functional.layer_norm(x, (x.size(-1),), weight, bias)
    return [torch.zeros_like(gradient) for gradient in torch.autograd.grad(out.square().sum(), (weight, bias))]


@values
@catches(skips_parameters, gradients=normalise_frozen_input)
def test_layer_norm_of_frozen_input(gradients: Gradients, device: torch.device) -> None:
    """A layer norm whose input needs no gradient has those of its parameters.

    pytorch/pytorch#183825: on MPS they were memory's. On the CPU right on 1.13 to 2.15.
    """
    x, weight, bias = uniform((5, 4)).to(device), uniform((4,), "w").to(device), uniform((4,), "b").to(device)
    wide = [tensor.cpu().double() for tensor in (x, weight, bias)]
    expected = normalise_frozen_input(wide[0], wide[1].requires_grad_(), wide[2].requires_grad_())
    got = gradients(x, weight.requires_grad_(), bias.requires_grad_())
    torch.testing.assert_close([g.cpu().double() for g in got], expected, rtol=1e-4, atol=1e-5)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _batch_last(x: Tensor) -> Tensor:
    return x.permute(1, 2, 0).contiguous().permute(2, 0, 1)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "batch_norm": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 6), _channels_last),
    "group_norm": (lambda: nn.GroupNorm(3, 6), (4, 6, 5, 4), _channels_last),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), (4, 3, 5, 6), _channels_last),
    "max_pool": (lambda: nn.MaxPool2d(2), (2, 3, 4, 6), _channels_last),
    "prelu": (lambda: nn.PReLU(3), (2, 3, 4, 5), _channels_last),
    "lstm": (lambda: nn.LSTM(3, 4), (5, 2, 3), _batch_last),
    "gru": (lambda: nn.GRU(3, 4), (5, 2, 3), _batch_last),
}


def differentiate_strided(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Gradients of the input and of each parameter, as torch has them."""
    leaf = x.detach().requires_grad_()
    out = layer(leaf)
    out = out[0] if isinstance(out, tuple) else out
    weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype).to(out.device)
    return list(torch.autograd.grad((out * weights).sum(), (leaf, *layer.parameters())))


def reads_memory_in_order(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """A backward that takes its input for contiguous."""
    return differentiate_strided(layer, in_storage_order(x))


@values
@pytest.mark.parametrize("layer", LAYERS)
@catches(reads_memory_in_order, gradients=differentiate_strided)
def test_layer_backward_minds_strides(gradients: Gradients, layer: str, device: torch.device) -> None:
    """A layer trained on a channels-last or permuted input has float64's gradients.

    pytorch/pytorch#175189 (batch norm and LSTM on MPS), pytorch/pytorch#156867, pytorch/pytorch#140913. On the CPU right on 1.13 to 2.15.
    """
    build, shape, lay_out = LAYERS[layer]
    module = build()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(uniform(parameter.shape, name))
    x = uniform(shape)
    expected = differentiate_strided(copy.deepcopy(module).double(), x.double())
    got = gradients(module.to(device), lay_out(x.to(device)))
    for mine, right in zip(got, expected):
        torch.testing.assert_close(mine.cpu().double(), right, rtol=1e-3, atol=1e-4)


def differentiate_weight(x: Tensor, w: Tensor) -> Tensor:
    """As torch has it."""
    (slope,) = torch.autograd.grad(functional.conv1d(x, w).mean(), w)
    return slope


def sums_sixteen_bits_of_samples(x: Tensor, w: Tensor) -> Tensor:
    """Samples after the 65536th do not count."""
    (slope,) = torch.autograd.grad(functional.conv1d(x[: 2**16], w).sum() / x.size(0), w)
    return slope


@values
@catches(sums_sixteen_bits_of_samples, differentiate=differentiate_weight)
def test_convolution_counts_all_samples(differentiate: Callable[..., Tensor], device: torch.device) -> None:
    """The gradient of a convolution's weight is over all samples of a batch of more than 65536.

    pytorch/pytorch#96225 (MPS). On the CPU right on 1.13 to 2.15.
    """
    x = torch.ones(2**16 + 4096, 1, 1, device=device)
    slope = differentiate(x, torch.ones(1, 1, 1, device=device, requires_grad=True))
    torch.testing.assert_close(slope.cpu(), torch.ones(1, 1, 1), rtol=1e-3, atol=0.0)
