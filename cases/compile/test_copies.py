"""What leaves a compiled module: its state, its copies, its pickles, the module inside."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.compiling import uncompiled, without_prefix
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.bits import same_bits
from conformance.instruments.compilation import compiling
from conformance.instruments.weights import fill, uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


class Model(nn.Linear):
    """A layer of a class of its own, 3 channels to 3."""

    def __init__(self) -> None:
        super().__init__(3, 3)


def _model(device: torch.device) -> Model:
    model = fill(Model()).to(device)
    assert isinstance(model, Model)
    return model


def read_state(compiled: nn.Module, way: str) -> dict[str, Tensor]:
    """The names of the plain model: by the prefix, or from the module inside."""
    return without_prefix(compiled.state_dict()) if way == "prefix" else dict(uncompiled(compiled).state_dict())


def reads_wrapper(compiled: nn.Module, way: str) -> dict[str, Tensor]:
    """What the wrapper says."""
    return dict(compiled.state_dict())


@pytest.mark.parametrize("way", ["prefix", "inner"])
@catches(Twin(reads_wrapper, "raises"), read=read_state)
def test_state_loads_into_plain_model(read: Code, way: str, device: torch.device) -> None:
    """The state of a compiled model loads into a plain one, by the guards without_prefix and uncompiled.

    karpathy/nanoGPT#325, mlfoundations/open_clip#639, huggingface/pytorch-image-models#2003, pytorch/pytorch#101107: the wrapper puts
    `_orig_mod.` before every name. 2.0 to 2.15.
    """
    model, plain = _model(device), Model().to(device)
    with compiling(model) as (compiled, _):
        compiled(uniform((2, 3)).to(device))
        state = read(compiled, way)
    plain.load_state_dict(state)
    x = uniform((2, 3)).to(device)
    assert same_bits(plain(x), model(x))


def replace_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the guard."""
    return without_prefix(state)


def strips_from_the_left(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Only where a name begins with it."""
    return {name[10:] if name.startswith("_orig_mod.") else name: tensor for name, tensor in state.items()}


@catches(strips_from_the_left, clean=replace_prefix)
def test_state_of_compiled_parts_is_clean(clean: Code, device: torch.device) -> None:
    """A model whose parts were compiled one by one has the plain model's names after the guard without_prefix.

    Lightning-AI/pytorch-lightning#20233: the prefix stands in the middle of names. 2.0 to 2.15.
    """
    model, names = nn.ModuleList([_model(device), _model(device)]), list(nn.ModuleList([Model(), Model()]).state_dict())
    for index, part in enumerate(model):
        model[index] = torch.compile(part, backend="eager")  # type: ignore[assignment]
    assert any("_orig_mod." in name for name in model.state_dict())
    assert list(clean(dict(model.state_dict()))) == names


def copy_deep(compiled: nn.Module, way: str) -> nn.Module:
    """The module inside, or the wrapper, module and all."""
    return copy.deepcopy(uncompiled(compiled) if way == "inner" else compiled)


def copies_the_hull(compiled: nn.Module, way: str) -> nn.Module:
    """A shallow copy, which shares the layers."""
    return copy.copy(uncompiled(compiled))


@pytest.mark.parametrize("way", ["inner", "wrapper"])
@catches(copies_the_hull, make=copy_deep)
def test_copy_is_its_own(make: Code, way: str, device: torch.device) -> None:
    """A deep copy of a compiled module answers alike, and keeps its weights when the original's move.

    Own observation; an average of weights (EMA) is made so. 2.0 to 2.15.
    """
    model, x = _model(device), uniform((2, 3)).to(device)
    with compiling(model) as (compiled, _), torch.no_grad():
        before = compiled(x).clone()
        copied = make(compiled, way)
        model.weight.zero_()
        model.bias.zero_()
        assert same_bits(copied(x), before)
        assert not same_bits(compiled(x), before)


def pickle_inner(compiled: nn.Module) -> Any:
    """The module inside."""
    return pickle.loads(pickle.dumps(uncompiled(compiled)))


def pickles_a_hull(compiled: nn.Module) -> Any:
    """A new model."""
    return Model()


@catches(pickles_a_hull, pack=pickle_inner)
def test_inner_pickles(pack: Code, device: torch.device, observe: Observe) -> None:
    """The module inside a compiled one can be pickled after it ran, by the guard uncompiled; whether the wrapper can is observed.

    pytorch/pytorch#101107. 2.0 to 2.15.
    """
    model, x = _model(device), uniform((2, 3)).to(device)
    with compiling(model) as (compiled, _):
        compiled(x)
        observe("wrapper", _pickled(compiled))
        assert same_bits(pack(compiled)(x), model(x))


def _pickled(thing: Any) -> str:
    try:
        torch.save(thing, io.BytesIO())
    except Exception as error:
        return type(error).__name__
    return "pickles"


def keep_the_class(model: Any) -> Any:
    """The module inside."""
    return uncompiled(model)


def takes_the_wrapper(model: Any) -> Any:
    """The wrapper is a module, and of another class."""
    return model


@catches(takes_the_wrapper, unwrap=keep_the_class)
def test_inner_has_its_class(unwrap: Code, device: torch.device) -> None:
    """The guard uncompiled gives back the very module, of its own class, and leaves a module that is not compiled alone.

    pytorch/pytorch#101107. 2.0 to 2.15.
    """
    model = _model(device)
    with compiling(model) as (compiled, _):
        assert type(unwrap(compiled)) is Model
        assert unwrap(compiled) is model
    assert uncompiled(model) is model
