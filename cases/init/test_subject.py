"""Checks of any model's weights: what a checkpoint, a copy and a cast keep, and what an init on the device draws."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import materialise
from conformance.incell import catches, dtypes, subjects, values
from conformance.incell.torchstate import seed_all
from conformance.instruments import poison
from conformance.instruments.bits import same_bits
from conformance.instruments.generalization import difference_of
from conformance.instruments.snapshots import tensors_of

Code = Callable[..., Any]
Observe = Callable[..., None]


def _answer(model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    with torch.no_grad():
        return model(*inputs)


def save_and_load(model: nn.Module, into: nn.Module, assign: bool) -> None:
    """Through a file, strictly."""
    written = io.BytesIO()
    torch.save(model.state_dict(), written)
    written.seek(0)
    into.load_state_dict(torch.load(written, map_location="cpu"), **({"assign": True} if assign else {}))


def loads_what_is_named_alike(model: nn.Module, into: nn.Module, assign: bool) -> None:
    """Biases and gains alone, and nothing is said."""
    into.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if tensor.dim() < 2}, strict=False)


@values
@subjects()
@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
@catches(loads_what_is_named_alike, load=save_and_load)
def test_subject_round_trips(load: Code, subject: Any, assign: bool, device: torch.device) -> None:
    """A subject saved and loaded strictly into a fresh one answers as before.

    pytorch/examples#1029; tables that grew, and ties, are what breaks it. 1.13 to 2.15; `assign` since 2.1.
    """
    if assign and "assign" not in inspect.signature(nn.Module.load_state_dict).parameters:
        pytest.skip("load_state_dict takes no assign")
    model, into, inputs = subject.build().to(device), subject.rebuilt().to(device), subject.inputs(device=device)
    with torch.no_grad():
        for parameter in into.parameters():
            parameter.zero_()
    expected = _answer(model, inputs)
    load(model, into, assign)
    other = difference_of(expected, _answer(into.to(device).eval(), inputs))
    assert not other, f"loaded strictly into a new build, it answers otherwise: {other}"


def copy_after_use(model: nn.Module) -> nn.Module:
    """A deep copy."""
    return copy.deepcopy(model)


def shares_the_parameters(model: nn.Module) -> nn.Module:
    """A shallow copy."""
    return copy.copy(model)


@values
@subjects()
@catches(shares_the_parameters, duplicate=copy_after_use)
def test_subject_copies(duplicate: Code, subject: Any, device: torch.device) -> None:
    """A subject that ran can be copied deeply, and the copy has the answers and memory of its own.

    lucidrains/rotary-embedding-torch#18: a cache left on the graph refuses the copy. 1.13 to 2.15.
    """
    model, inputs = subject.build().to(device), subject.inputs(device=device)
    model(*inputs)
    expected = _answer(model, inputs)
    twin = duplicate(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    other = difference_of(expected, _answer(twin, inputs))
    assert not other, f"its copy answers otherwise once the original has changed: {other}"


def cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """All that floats."""
    return model.to(dtype)


class Promoting(nn.Module):
    """Multiplies the answer by a float32 constant."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.scale = model, torch.ones(1)

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        return _floats(self.model(*inputs))[0] * self.scale.to(inputs[0].device)


def leaves_a_constant_wide(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A constant that `.to()` does not know."""
    return Promoting(model).to(dtype)


def _cast_inputs(inputs: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def _floats(output: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_of(output) if tensor.is_floating_point()]


@values
@subjects()
@dtypes("bfloat16")
@catches(leaves_a_constant_wide, lower=cast)
def test_subject_casts(lower: Code, subject: Any, dtype: torch.dtype, device: torch.device, observe: Observe) -> None:
    """A subject cast to bfloat16 answers in bfloat16, near its float32 answer; observed is how near.

    huggingface/transformers#24203: a constant or table in float32 promotes what follows. 1.13 to 2.15.
    """
    expected = _floats(_answer(subject.build().to(device), subject.inputs(device=device)))
    got = _floats(_answer(lower(subject.build(), dtype).to(device), _cast_inputs(subject.inputs(device=device), dtype)))
    apart = max(float((a.float() - b.float()).abs().max() / a.float().abs().max().clamp_min(1e-6)) for a, b in zip(expected, got))
    observe("relative_error", apart, better="lower")
    answered = {str(tensor.dtype) for tensor in got}
    assert answered == {str(dtype)}, f"cast to {dtype}, it answers in {', '.join(sorted(answered))}"
    assert apart < 0.1, f"cast to {dtype}, its answer is off by {apart:.2g} of the largest element of the float32 one"


def initialise_where_it_lives(subject: Any, device: torch.device) -> nn.Module:
    """Memory on the device, the seed, then the init; what it forgets holds one number, and is another check's affair."""
    model = poison.fill(materialise(subject.skeleton(), device), 1)
    seed_all(0, device.type)
    subject.initialise(model)
    return model


def seeds_by_the_clock(subject: Any, device: torch.device) -> nn.Module:
    """Whatever the stream stands at."""
    model = materialise(subject.skeleton(), device)
    torch.seed()
    subject.initialise(model)
    return model


def leaves_fresh_memory(subject: Any, device: torch.device) -> nn.Module:
    """Memory on the device, for a checkpoint that never comes."""
    return poison.fill(materialise(subject.skeleton(), device), 1)


def _all(model: nn.Module) -> dict[str, Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: (torch.view_as_real(x) if x.is_complex() else x).detach().cpu().double().flatten() for name, x in named}


def _of_another_distribution(there: Tensor, here: Tensor) -> bool:
    """Whether two draws of one distribution could hardly be so far apart: eight standard errors of mean or spread.

    What is no draw, a constant or a table, must be the same up to rounding; of a single number nothing can be told.
    """
    if here.numel() < 2 or torch.allclose(there, here, rtol=1e-4, atol=1e-4, equal_nan=True):
        return False
    spread, error = float(here.std()), float(here.std()) * here.numel() ** -0.5
    return not (abs(float(there.mean() - here.mean())) <= 12 * error and abs(float(there.std()) - spread) <= 8 * error)


@values
@subjects()
@catches(seeds_by_the_clock, leaves_fresh_memory, init=initialise_where_it_lives)
def test_subject_init_is_the_cpus(init: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject initialised on its device repeats there under one seed, and draws from what it draws from on the CPU.

    pytorch/torchtitan#1777. Bits are observed, not held equal: each kind of device has a stream of its own. 1.13 to 2.15.
    """
    here = _all(initialise_where_it_lives(subject, torch.device("cpu")))
    there, again = _all(init(subject, device)), _all(init(subject, device))
    observe("bits", torch.cat(list(there.values())).float())
    observe("bits_of_the_cpu", torch.cat(list(here.values())).float())
    other = [name for name in there if not same_bits(there[name].nan_to_num(), again[name].nan_to_num())]
    assert not other, f"other numbers under the same seed: {', '.join(other)}"
    wrong = [name for name in there if _of_another_distribution(there[name], here[name])]
    assert not wrong, f"not what the CPU draws: {', '.join(wrong)}"


def initialise_over(subject: Any, device: torch.device, which: int) -> tuple[nn.Module, nn.Module]:
    """The subject initialised where memory held fill `which`, and as that memory was before."""
    model = poison.scatter(materialise(subject.skeleton(), device), which)
    before = copy.deepcopy(model)
    seed_all(0, device.type)
    subject.initialise(model)
    return model, before


def scales_by_what_was_there(subject: Any, device: torch.device, which: int) -> tuple[nn.Module, nn.Module]:
    """A weight is scaled by the spread that another had before it was written."""
    model = poison.scatter(materialise(subject.skeleton(), device), which)
    first = max(model.parameters(), key=torch.numel)
    before, spread = copy.deepcopy(model), float(first.detach().std())
    seed_all(0, device.type)
    subject.initialise(model)
    with torch.no_grad():
        first.mul_(spread)
    return model, before


@values
@subjects()
@catches(scales_by_what_was_there, init=initialise_over)
def test_subject_init_reads_no_memory(init: Code, subject: Any, device: torch.device) -> None:
    """A subject initialised after `to_empty` has the same bits under the same seed, whatever the memory held.

    An init that reads a weight before it is written reads what was there: the fills are finite and differ from element to element.
    What is never written is init.subject_init_writes_everything's affair. pytorch/torchtitan#2450 is the kin. Own observation, 2.13 and
    2.15.
    """
    (first, there), (second, elsewhere) = (tuple(map(_all, init(subject, device, which))) for which in (0, 1))
    left = {name: (there[name] == first[name]) & (elsewhere[name] == second[name]) for name in first}
    moved = [name for name, kept in left.items() if bool(((first[name] != second[name]) & ~kept).any())]
    if moved:
        again = _all(init(subject, device, 0)[0])
        moved = [name for name in moved if same_bits(again[name], first[name])]  # else the seed is not heeded: another check's affair
    assert not moved, f"what the memory held shows in {', '.join(moved)}"
