"""Layers whose start is hidden: an init under a private name, parts that are written over, gates inside of one bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.initialisation import reset_all
from conformance.incell import catches, values
from conformance.incell.torchstate import seed_all
from conformance.instruments import poison
from conformance.instruments.bits import same_bits

Reset = Callable[[nn.Module], None]

#: Name -> how the layer is built.
ATTENDING: dict[str, Callable[[Any], nn.Module]] = {
    "attention": lambda device: nn.MultiheadAttention(8, 2, device=device),
    "attention_of_other_widths": lambda device: nn.MultiheadAttention(8, 2, kdim=6, vdim=4, device=device),
    "encoder_layer": lambda device: nn.TransformerEncoderLayer(8, 2, 16, device=device),
    "decoder_layer": lambda device: nn.TransformerDecoderLayer(8, 2, 16, device=device),
}


def resets_the_public_name(module: nn.Module) -> None:
    """What FSDP and most loops over a model call: attention has no method of that name."""
    for part in module.modules():
        reset = getattr(part, "reset_parameters", None)
        if reset is not None:
            reset()


def resets_outside_first(module: nn.Module) -> None:
    """In order of `modules()`: the bias of attention's output, which attention had cleared, is drawn again by its layer."""
    for part in module.modules():
        reset = getattr(part, "reset_parameters", getattr(part, "_reset_parameters", None))
        if reset is not None:
            reset()


@values
@pytest.mark.parametrize("layer", ATTENDING)
@catches(resets_the_public_name, resets_outside_first, reset=reset_all)
def test_attention_starts_as_it_is_built(reset: Reset, layer: str, device: torch.device) -> None:
    """Attention that was built on meta and reset has the numbers that its constructor draws under the same seed.

    pytorch/pytorch#107909, NVIDIA/Megatron-LM#6799, pytorch/pytorch#57117. Guard `reset_all`, 1.13 to 2.15.
    """
    module = poison.fill(ATTENDING[layer]("meta").to_empty(device=device), 1)
    seed_all(0, device.type)
    reset(module)
    seed_all(0, device.type)
    built = dict(ATTENDING[layer](device).named_parameters())
    differing = [name for name, parameter in module.named_parameters() if not same_bits(parameter, built[name])]
    assert not differing, f"another start: {', '.join(differing)}"


Open = Callable[[nn.LSTM], None]


@torch.no_grad()
def open_forget_gates(lstm: nn.LSTM) -> None:
    """Of each layer and direction one of the two biases, in its second quarter."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias"):
            bias.zero_()
        if name.startswith("bias_ih"):
            bias[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0


@torch.no_grad()
def opens_both_biases(lstm: nn.LSTM) -> None:
    """Both biases are added: the gate has 2."""
    open_forget_gates(lstm)
    for name, bias in lstm.named_parameters():
        if name.startswith("bias_hh"):
            bias[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0


@torch.no_grad()
def opens_the_first_layer(lstm: nn.LSTM) -> None:
    """By the names of the first layer."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias"):
            bias.zero_()
    lstm.bias_ih_l0[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0


@torch.no_grad()
def opens_the_first_quarter(lstm: nn.LSTM) -> None:
    """The order of other libraries, that begin with the forget gate."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias"):
            bias.zero_()
        if name.startswith("bias_ih"):
            bias[: lstm.hidden_size] = 1.0


@torch.no_grad()
def _kept_of_the_cell(lstm: nn.LSTM, device: torch.device) -> Tensor:
    """What is left of a cell of ones after a step on nothing `(layers * directions, 1, H)`: the openness of the forget gates."""
    for name, weight in lstm.named_parameters():
        if name.startswith("weight"):
            weight.zero_()
    shape = (4, 1, lstm.hidden_size)
    before = (torch.zeros(shape, device=device), torch.ones(shape, device=device))
    kept: Tensor = lstm(torch.zeros(1, 1, lstm.input_size, device=device), before)[1][1]
    return kept


@values
@catches(opens_both_biases, opens_the_first_layer, opens_the_first_quarter, gates=open_forget_gates)
def test_forget_gates_start_at_one(gates: Open, device: torch.device) -> None:
    """The forget gates of each layer and direction of an LSTM start with a bias of 1, the other gates with 0.

    pytorch/pytorch#750, google-research/flood-forecasting#289. 1.13 to 2.15.
    """
    lstm = nn.LSTM(3, 5, num_layers=2, bidirectional=True).to(device)
    gates(lstm)
    opened = torch.sigmoid(torch.ones(4, 1, 5))
    torch.testing.assert_close(_kept_of_the_cell(lstm, device).cpu(), opened, rtol=1e-5, atol=1e-6)


def initialise_at_the_first_input(model: nn.Module, x: Tensor, init: Reset) -> None:
    """The sizes first, then the start."""
    model(x)
    init(model)


def initialises_before_the_first_input(model: nn.Module, x: Tensor, init: Reset) -> None:
    """Nothing is there yet: a lazy layer passes a reset over, and draws at its first input."""
    init(model)
    model(x)


@torch.no_grad()
def _write_a_third(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, nn.Linear) and not _is_lazy(part):
            part.weight.fill_(1 / 3)


def _is_lazy(part: nn.Module) -> bool:
    return any(isinstance(parameter, nn.UninitializedParameter) for parameter in part.parameters())


@values
@catches(initialises_before_the_first_input, start=initialise_at_the_first_input)
def test_lazy_layer_is_initialised_when_it_is_there(start: Callable[..., None], device: torch.device) -> None:
    """An init of one's own reaches a lazy layer after its first input; before, there is nothing that it could write.

    pytorch/pytorch#125861, pytorch/pytorch#149691. 1.13 to 2.15.
    """
    model = nn.Sequential(nn.LazyLinear(2, device=device))  # moved before its sizes are known, it loses that they are not, on XLA
    start(model, torch.ones(1, 3, device=device), _write_a_third)
    torch.testing.assert_close(model[0].weight.detach().cpu(), torch.full((2, 3), 1 / 3))
