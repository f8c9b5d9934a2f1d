"""`load_state_dict(assign=True)` into a module built on meta: what it does not load, and what it breaks."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn

from conformance import subjects
from conformance.guards import RotaryCache
from conformance.incell import catches, host, values
from conformance.subjects.subject import on_meta

State = dict[str, torch.Tensor]
Load = Callable[[nn.Module, State], object]


@pytest.fixture(autouse=True)
def _needs_assign() -> None:
    if "assign" not in inspect.signature(nn.Module.load_state_dict).parameters:
        pytest.skip("load_state_dict takes no assign")


class Rotating(nn.Module):
    """A linear map and a non-persistent table that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(2, 2)
        self.rotary = RotaryCache(8, 4)


class Tied(nn.Module):
    """An embedding and a head that share one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.tie()

    def tie(self) -> None:
        """Make the head's matrix the embedding's."""
        self.head.weight = self.embedding.weight


def assigns_alone(module: nn.Module, state: State) -> None:
    """Load and think all is done."""
    module.load_state_dict(state, assign=True)


def assign_and_rebuild_tables(module: nn.Module, state: State) -> None:
    """Load, then give the tables that no checkpoint holds their memory and numbers."""
    module.load_state_dict(state, assign=True)
    for part in module.modules():
        if isinstance(part, RotaryCache):
            part.to_empty(device=next(iter(state.values())).device)
            part.reset_parameters()


@values
@catches(assigns_alone, load=assign_and_rebuild_tables)
def test_assign_leaves_nothing_on_meta(load: Load, device: torch.device) -> None:
    """After an assigning load the tables that no checkpoint holds have numbers too.

    pytorch/pytorch#102212: non-persistent buffers stay on meta and no key is missing. Since 2.1, to 2.15.
    """
    whole = Rotating().to(device)
    module = on_meta(Rotating)
    load(module, whole.state_dict())
    left = [name for name, tensor in (*module.named_parameters(), *module.named_buffers()) if tensor.is_meta]
    assert left == []
    torch.testing.assert_close(module.rotary.cos, whole.rotary.cos)


@values
@catches(assigns_alone, load=assign_and_rebuild_tables)
def test_gpt_loads_by_assignment(load: Load, device: torch.device) -> None:
    """A GPT built on meta answers like the one whose state dict it was assigned, once its rotary tables are rebuilt.

    pytorch/pytorch#102212, karpathy/nanochat. Since 2.1, to 2.15.
    """
    gpt = subjects.get("gpt")
    whole, module = gpt.build().to(device), gpt.skeleton().eval()
    load(module, whole.state_dict())
    assert not module.rotary.cos.is_meta
    with torch.no_grad():
        torch.testing.assert_close(module(*gpt.inputs(device=device)), whole(*gpt.inputs(device=device)))


def load_then_make_optimizer(module: nn.Module, state: State) -> torch.optim.Optimizer:
    """Make the optimizer once the parameters are final."""
    module.load_state_dict(state, assign=True)
    return torch.optim.SGD(module.parameters(), lr=0.5)


def makes_optimizer_before_load(module: nn.Module, state: State) -> torch.optim.Optimizer:
    """Make the optimizer for parameters that the load replaces."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module.load_state_dict(state, assign=True)
    return optimizer


@values
@catches(makes_optimizer_before_load, prepare=load_then_make_optimizer)
def test_optimizer_steps_what_was_assigned(prepare: Callable[[nn.Module, State], torch.optim.Optimizer], device: torch.device) -> None:
    """An optimizer made after an assigning load moves the weights that were assigned.

    pytorch/pytorch#102212 (its design): one made before holds the parameters that were replaced. Since 2.1, to 2.15.
    """
    module = nn.Linear(2, 1, device=device)
    optimizer = prepare(module, {name: torch.zeros_like(tensor) for name, tensor in module.state_dict().items()})
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert module.weight.tolist() == [[-0.5, -0.5]]


def assign_and_freeze_again(module: nn.Module, state: State) -> None:
    """Load, then put back what was frozen."""
    trained = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    module.load_state_dict(state, assign=True)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(trained[name])


def replaces_parameters(module: nn.Module, state: State) -> None:
    """Put new parameters in place of the old: each is trainable."""
    for name, tensor in state.items():
        setattr(module, name, nn.Parameter(tensor))


def _check_frozen(load: Load, device: torch.device) -> None:
    module = nn.Linear(2, 2, device=device)
    module.weight.requires_grad_(False)
    load(module, nn.Linear(2, 2, device=device).state_dict())
    assert (module.weight.requires_grad, module.bias.requires_grad) == (False, True)


@catches(replaces_parameters, load=assign_and_freeze_again)
def test_frozen_weights_are_frozen_again(load: Load, device: torch.device) -> None:
    """A frozen weight is frozen after an assigning load that puts back what was frozen.

    pytorch/pytorch#121157. Since 2.1, to 2.15; needed on 2.1 and 2.2.
    """
    _check_frozen(load, device)


@catches(replaces_parameters, load=assigns_alone)
def test_assign_keeps_requires_grad(load: Load, device: torch.device) -> None:
    """An assigning load leaves a frozen weight frozen and a live one live.

    pytorch/pytorch#121157: 2.1 and 2.2 thaw every weight; right since 2.3.
    """
    _check_frozen(load, device)


def assign_and_tie_again(module: nn.Module, state: State) -> None:
    """Load, then tie."""
    module.load_state_dict(state, assign=True)
    assert isinstance(module, Tied)
    module.tie()


@catches(assigns_alone, load=assign_and_tie_again)
def test_ties_survive_assignment(load: Load, device: torch.device, observe: Callable[..., None]) -> None:
    """An embedding tied to its head is one parameter after an assigning load that ties again.

    pytorch/pytorch#188346: the load alone leaves two, and an optimizer steps each. Since 2.1, to 2.15.
    """
    module = Tied().to(device)
    load(module, Tied().to(device).state_dict())
    observe("parameters", len(list(module.parameters())), better="lower")
    assert len(list(module.parameters())) == 1


def cast_state_then_assign(module: nn.Module, state: State) -> None:
    """Give the checkpoint the module's dtypes before it is assigned."""
    dtypes = {name: tensor.dtype for name, tensor in module.state_dict().items()}
    module.load_state_dict({name: tensor.to(dtypes[name]) for name, tensor in state.items()}, assign=True)


@host
@catches(assigns_alone, load=cast_state_then_assign)
def test_assign_keeps_dtype_if_cast(load: Load) -> None:
    """A float32 module is float32 after an assigning load of a bfloat16 checkpoint that was cast before.

    pytorch/pytorch#102212 (its design): assignment takes the checkpoint's dtype. Since 2.1, to 2.15.
    """
    module = nn.Linear(2, 2)
    load(module, {name: tensor.to(torch.bfloat16) for name, tensor in nn.Linear(2, 2).state_dict().items()})
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
