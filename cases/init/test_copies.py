"""Copies of an initialised model: deep ones, snapshots of its state, and loads that are told to forgive."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import torch
from torch import Tensor, nn

from conformance.guards.initialisation import keep_ties
from conformance.incell import catches, values
from conformance.instruments.bits import same_bits

Copy = Callable[[nn.Module], nn.Module]
State = dict[str, Tensor]


class Language(nn.Module):
    """An embedding, its tied head, a gain, and a count that no optimizer moves."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.gain = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores `(B, 6)` of `tokens` `(B,)`."""
        return self.gain * self.head(self.embedding(tokens))


def _step(module: nn.Module, device: torch.device) -> None:
    module(torch.tensor([0, 3], device=device)).pow(2).sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.5).step()


def copy_at_once(module: nn.Module) -> nn.Module:
    """One deep copy: its memo keeps what is shared shared."""
    return copy.deepcopy(module)


def copies_each_parameter(module: nn.Module) -> nn.Module:
    """A deep copy for each parameter, by name: ties are lost."""
    twin = copy.copy(module)
    twin._modules = {name: copy.copy(part) for name, part in module._modules.items() if part is not None}
    for part in (twin, *twin._modules.values()):
        part._parameters = {name: copy.deepcopy(parameter) for name, parameter in part._parameters.items()}
    return twin


def copies_the_shell(module: nn.Module) -> nn.Module:
    """A shallow copy: both have the same parameters."""
    return copy.copy(module)


@values
@catches(copies_each_parameter, copies_the_shell, duplicate=copy_at_once)
def test_deep_copy_is_apart_and_tied(duplicate: Copy, device: torch.device) -> None:
    """A copy has the bits and the ties of the original and no memory in common with it.

    Python's `copy`; a deep copy remembers what is shared only within one call. 1.13 to 2.15.
    """
    module = keep_ties(Language(), lambda tied: tied.to(device))  # on XLA `.to` unties
    twin = duplicate(module)
    assert same_bits(twin.embedding.weight, module.embedding.weight)
    assert twin.head.weight is twin.embedding.weight
    before = twin.embedding.weight.detach().clone()
    _step(module, device)
    assert same_bits(twin.embedding.weight, before)


def clone_state(module: nn.Module) -> State:
    """Copies of the values."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def keeps_references(module: nn.Module) -> State:
    """The state dict itself: its tensors are the parameters' memory."""
    return dict(module.state_dict())


@values
@catches(keeps_references, snapshot=clone_state)
def test_snapshot_stays_as_it_was(snapshot: Callable[[nn.Module], State], device: torch.device) -> None:
    """A snapshot of the best weights holds them after training went on.

    The tutorial on saving and loading models warns that state_dict() returns references. 1.13 to 2.15.
    """
    module = Language().to(device)
    before = module.embedding.weight.detach().clone()
    best = snapshot(module)
    _step(module, device)
    assert same_bits(best["embedding.weight"], before)
    assert not same_bits(module.embedding.weight, before)


def through_a_file(module: nn.Module, into: nn.Module) -> None:
    """Save, load, and look at what was left out."""
    written = io.BytesIO()
    torch.save(module.state_dict(), written)
    written.seek(0)
    result = into.load_state_dict(torch.load(written, map_location="cpu"), strict=False)
    if result.missing_keys or result.unexpected_keys:
        raise RuntimeError(f"not loaded: {result}")


def forgives_a_prefix(module: nn.Module, into: nn.Module) -> None:
    """Names under a prefix, as a wrapper leaves them, into `strict=False`: nothing is loaded, and nothing is said."""
    into.load_state_dict({f"module.{name}": tensor for name, tensor in module.state_dict().items()}, strict=False)


@values
@catches(forgives_a_prefix, load=through_a_file)
def test_loaded_model_answers_alike(load: Callable[[nn.Module, nn.Module], None], device: torch.device) -> None:
    """A model into which another's state was loaded answers as the other does.

    pytorch/examples#1029, pytorch/pytorch#3805. 1.13 to 2.15.
    """
    module, into = Language().to(device), Language().to(device)
    load(module, into)
    tokens = torch.arange(6, device=device)
    assert same_bits(into(tokens), module(tokens))
