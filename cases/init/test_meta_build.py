"""Modules built on meta and initialised after `to_empty`: nothing may be left as memory was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from conformance.guards import UninitialisedError, initialise, materialise
from conformance.guards.initialisation import reset_all
from conformance.incell import catches, host, requires, subjects, values
from conformance.incell.torchstate import seed_all
from conformance.instruments import poison
from conformance.instruments.assignments import assigned
from conformance.instruments.models import blame_first
from conformance.subjects.gpt import GPT, skeleton
from conformance.subjects.subject import on_meta


class Rotating(nn.Module):
    """A linear map and a non-persistent table of frequencies, as rotary embeddings keep."""

    freqs: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.register_buffer("freqs", torch.empty(4), persistent=False)
        self.register_buffer("steps", torch.empty(1, dtype=torch.int64))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Write the table and the counter."""
        self.freqs.copy_(10.0 ** -torch.arange(4, dtype=torch.float32))
        self.steps.zero_()


class Ordered(nn.Module):
    """Two layers built in the order in which they are registered."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8, device=device), nn.Linear(8, 8, device=device)


class RegisteredInOtherOrder(nn.Module):
    """The same two layers, the second built before the first."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        second = nn.Linear(8, 8, device=device)
        self.first = nn.Linear(8, 8, device=device)
        self.second = second


class Tied(nn.Module):
    """An embedding and a head that share one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight


def write_everything(model: GPT) -> None:
    """The model's own explicit init."""
    model.init_weights()


def forgets_smear_and_backout(model: GPT) -> None:
    """Leave out two scalars and a gate."""
    model.init_matrices()
    model.rotary.reset_parameters()


def forgets_rotary_tables(model: GPT) -> None:
    """Leave out the non-persistent buffers."""
    model.init_matrices()
    model.init_smear_and_backout()


@values
@catches(forgets_smear_and_backout, forgets_rotary_tables, init=write_everything)
def test_gpt_init_writes_everything(init: Callable[[GPT], None], device: torch.device, observe: Callable[..., None]) -> None:
    """A GPT built on meta holds no uninitialised number after its init: scalars, gates and rotary tables included.

    karpathy/nanochat#686: smear_lambda, backout_lambda and smear_gate.weight were left to the heap. Holds on 1.13 to 2.15.
    """
    left = poison.untouched(lambda: materialise(skeleton(), device), init)
    observe("untouched", ", ".join(left) or "none")
    assert left == []


def reset_parameters_and_buffers(module: nn.Module) -> None:
    """Every part's own reset, the root's included."""
    reset_all(module)


def resets_matrices_only(module: nn.Module) -> None:
    """Reset linear layers alone."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.reset_parameters()


@values
@subjects()
@catches(resets_matrices_only, init=None)
def test_subject_init_writes_everything(
    init: Callable[[nn.Module], None] | None, subject: Any, device: torch.device, observe: Callable[..., None]
) -> None:
    """A subject built on meta holds no uninitialised number after its own explicit init.

    pytorch/torchtitan#2450, karpathy/nanochat#686. Holds on 1.13 to 2.15, and with transformers 4.49 to 5.24.
    """
    left = poison.untouched(lambda: materialise(subject.skeleton(), device), init or subject.initialise)
    observe("untouched", len(left), better="lower")
    if left:
        with assigned() as lines:
            built = subject.skeleton()
        alone = getattr(init or subject.initialise, "__name__", "") == "reset_all"
        by = "; it brings no init (init_weights, or `init` beside it), and its parts have no reset_parameters for them" if alone else ""
        error = AssertionError(f"never written: {', '.join(left)}{by}")
        blame_first(error, [lines.line(built, name) for name in left])
        raise error


def skips_buffers(module: nn.Module) -> None:
    """Reset what has weights, and no buffer."""
    resets_matrices_only(module)


@values
@catches(skips_buffers, init=reset_parameters_and_buffers)
def test_buffers_are_initialised(init: Callable[[nn.Module], None], device: torch.device) -> None:
    """Buffers, non-persistent and integer ones included, need an init of their own after `to_empty`.

    pytorch/torchtitan#2450. Holds on 1.13 to 2.15.
    """
    assert poison.untouched(lambda: materialise(on_meta(Rotating), device), init) == []


def trusts_init(module: nn.Module, device: torch.device, init: Callable[[nn.Module], object]) -> nn.Module:
    """Run the init and check nothing."""
    materialise(module, device)
    init(module)
    return module


@values
@catches(trusts_init, guard=initialise)
def test_guard_names_what_was_missed(guard: Callable[..., nn.Module], device: torch.device) -> None:
    """The guard `initialise` refuses an init that forgets a tensor, and names exactly what it forgot.

    karpathy/nanochat#686. Holds on 1.13 to 2.15.
    """
    with pytest.raises(UninitialisedError) as refused:
        guard(on_meta(Rotating), device, skips_buffers)
    assert refused.value.names == ["freqs", "steps"]


@values
@catches(RegisteredInOtherOrder, build=Ordered)
def test_meta_init_equals_eager(build: Callable[[Any], nn.Module], device: torch.device) -> None:
    """One seed gives the same weights to eager construction and to meta, `to_empty` and reset, if both go in one order.

    pytorch/pytorch#75880, pytorch/torchtitan#1777. Holds on 1.13 to 2.15.
    """
    seed_all(0, device.type)
    eager = build(device)
    seed_all(0, device.type)
    later = initialise(build("meta"), device)
    for expected, got in zip(eager.parameters(), later.parameters()):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def strips_numbers(factory: Callable[[], nn.Module]) -> nn.Module:
    """Build with numbers, then move to meta."""
    return factory().to("meta")


@host
@catches(strips_numbers, build=on_meta)
def test_meta_build_draws_nothing(build: Callable[[Callable[[], nn.Module]], nn.Module]) -> None:
    """Building on meta leaves the global random stream where it was.

    pytorch/torchtitan#1777. Holds on 1.13 to 2.15 (before 2.0 for the guard alone: there is no device context).
    """
    before = torch.get_rng_state()
    built = build(Rotating)
    assert all(parameter.is_meta for parameter in built.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def empties_and_forgets_ties(module: nn.Module, device: torch.device) -> nn.Module:
    """Give memory to each name by itself."""
    return module.to_empty(device=device)


@catches(empties_and_forgets_ties, give_memory=materialise)
def test_ties_survive_materialising(
    give_memory: Callable[[nn.Module, torch.device], nn.Module], device: torch.device, observe: Callable[..., None]
) -> None:
    """An embedding tied to its head is still one parameter after a meta module got its memory.

    Modalities/modalities#357, huggingface/accelerate#1204: `to_empty` alone unties, on 1.13 to 2.15.
    """
    module = give_memory(on_meta(Tied), device)
    observe("parameters", len(list(module.parameters())), better="lower")
    assert module.embedding.weight is module.head.weight
    assert len(list(module.parameters())) == 1


def leave_memory_as_it_is(module: nn.Module) -> None:
    """Do nothing."""
    del module


@torch.no_grad()
def zeroes_fresh_memory(module: nn.Module) -> None:
    """Hide what was forgotten behind zeros."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.zero_()


@values
@requires("torch>=2.1")
@catches(zeroes_fresh_memory, tidy=leave_memory_as_it_is)
def test_fresh_memory_shows(tidy: Callable[[nn.Module], None], device: torch.device) -> None:
    """In deterministic mode `to_empty` fills floats with NaN and integers with their maximum: what init forgets cannot pass for zero.

    pytorch/pytorch#101849, pytorch/pytorch#193317. Since 2.1; the switch that turns it off came with 2.2, so only the version tells.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    module = on_meta(Rotating)
    torch.use_deterministic_algorithms(True)
    try:
        module.to_empty(device=device)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    tidy(module)
    assert bool(torch.isnan(module.project.weight).all())
    assert bool((module.steps == torch.iinfo(torch.int64).max).all())
