"""Where a module keeps its rotary table: as a buffer that follows the module and stays out of its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache
from conformance.incell import catches, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation

Build = Callable[..., Any]


def table(rows: int, device: Any, base: float = rotation.BASE) -> Tensor:
    """Cosines `(rows, 2)`, float32."""
    return rotation.angles(range(rows), 4, base).cos().float().to(device)


class Model(nn.Module):
    """A linear layer, and a table that its subclasses keep in their own ways."""

    cos: Any

    def __init__(self, device: Any, rows: int = 8, base: float = rotation.BASE) -> None:
        super().__init__()
        self.mix = nn.Linear(2, 2, device=device)
        self.keep(table(rows, device, base))

    def keep(self, cos: Tensor) -> None:
        """Keep the table for the first time, as a non-persistent buffer."""
        self.register_buffer("cos", cos, persistent=False)

    def grow(self, rows: int) -> None:
        """Keep a longer table: overwrite the registered buffer."""
        self.cos = table(rows, self.mix.weight.device)


class KeepsAttribute(Model):
    """A plain attribute."""

    def keep(self, cos: Tensor) -> None:
        """Assign the table."""
        self.cos = cos


class KeepsPersistentBuffer(Model):
    """A buffer, persistent as is the default."""

    def keep(self, cos: Tensor) -> None:
        """Register the table."""
        self.register_buffer("cos", cos)


class KeepsParameter(Model):
    """A parameter that is not trained."""

    def keep(self, cos: Tensor) -> None:
        """Register the table among the weights."""
        self.register_parameter("cos", nn.Parameter(cos, requires_grad=False))


@catches(KeepsParameter, KeepsPersistentBuffer, build=Model)
def test_table_is_no_weight(build: Build, device: torch.device) -> None:
    """A table is neither among the parameters, where optimizers, sharding and counts find it, nor in the checkpoint.

    lucidrains/rotary-embedding-torch#18 (frequencies in a parameter). Holds on 1.13 to 2.15.
    """
    model = build(device)
    assert [name for name, _ in model.named_parameters()] == ["mix.weight", "mix.bias"]
    assert list(model.state_dict()) == ["mix.weight", "mix.bias"]


@values
@catches(KeepsAttribute, KeepsPersistentBuffer, build=Model)
def test_table_follows_its_module(build: Build, device: torch.device) -> None:
    """A table moves with its module and is not in the state dict; meta stands in for the other device.

    pytorch/torchtitan#164, karpathy/llama2.c#266. Holds on 1.13 to 2.15.
    """
    model = build(device).to("meta")
    assert model.cos.device.type == "meta"
    assert list(model.state_dict()) == ["mix.weight", "mix.bias"]


@catches(Twin(KeepsPersistentBuffer, "raises"), build=Model)
def test_grown_model_loads_strictly(build: Build, device: torch.device) -> None:
    """The checkpoint of a model whose table has grown loads strictly into one whose table has not.

    meta-pytorch/torchtune#158, EleutherAI/gpt-neox#1168, pytorch/torchtitan#316: a persistent table is a size mismatch. 1.13 to 2.15.
    """
    grown, fresh = build(device), build(device)
    grown.grow(32)
    assert fresh.load_state_dict(grown.state_dict(), strict=True) == ([], [])


@values
@catches(KeepsPersistentBuffer, build=Model)
def test_checkpoint_brings_no_table(build: Build, device: torch.device) -> None:
    """A model whose base was changed keeps its own table when it loads an older checkpoint.

    Observed here: a persistent buffer of the same size undoes the change in silence, on 1.13 to 2.15.
    """
    old, new = build(device), build(device, base=500000.0)
    new.load_state_dict(old.state_dict(), strict=False)
    assert rotation.error(new.cos, rotation.angles(range(8), 4, 500000.0).cos()) < 1e-6


def load_without_tables(model: nn.Module, state: dict[str, Tensor]) -> Any:
    """Drop from the checkpoint the tables that this model computes itself, and only those."""
    own = {name for name, _ in model.named_buffers()} - set(model.state_dict())
    return model.load_state_dict({name: value for name, value in state.items() if name not in own}, strict=True)


def loads_everything(model: nn.Module, state: dict[str, Tensor]) -> Any:
    """Load the checkpoint as it is."""
    return model.load_state_dict(state, strict=True)


def loads_loosely(model: nn.Module, state: dict[str, Tensor]) -> Any:
    """Load with `strict=False`, which hides a missing weight as well."""
    return model.load_state_dict(state, strict=False)


@catches(Twin(loads_everything, "raises"), loads_loosely, load=load_without_tables)
def test_old_checkpoint_with_a_table_loads(load: Build, device: torch.device) -> None:
    """A checkpoint from when the table was persistent loads strictly once that key is dropped, and a missing weight is still told.

    EleutherAI/gpt-neox#1168 is the kin; `strict=False` hides what is missing. Holds on 1.13 to 2.15.
    """
    model, state = Model(device), KeepsPersistentBuffer(device).state_dict()
    assert load(model, state) == ([], [])
    del state["mix.bias"]
    with pytest.raises(RuntimeError, match=r"mix\.bias"):
        load(model, state)


class CallsItsCache(nn.Module):
    """A rotary cache under a name that nothing else has."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryCache(4, rows=8)

    def cosines(self, length: int) -> Tensor:
        """Cosines of the first positions."""
        return self.rotary(length)[0]


class HidesItsCacheBehindAMethod(nn.Module):
    """A rotary cache registered under the name of a method: the method of the class is found first, the cache never."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = RotaryCache(4, rows=8)  # type: ignore[assignment, method-assign]

    def rotary(self, length: int) -> tuple[Tensor, Tensor]:  # type: ignore[no-redef]
        """What was there before the cache."""
        return torch.ones(length, 2), torch.zeros(length, 2)

    def cosines(self, length: int) -> Tensor:
        """Cosines of the first positions."""
        return self.rotary(length)[0]


@values
@catches(HidesItsCacheBehindAMethod, build=CallsItsCache)
def test_cache_is_not_hidden_by_a_method(build: Build, device: torch.device) -> None:
    """A cache answers under its attribute's name; assigned under the name of a method it is registered, and never called.

    Observed here: `register_module` refuses the name and an assignment does not, on 1.13 to 2.15.
    """
    model = build().to(device)
    assert rotation.error(model.cosines(8), rotation.angles(range(8), 4).cos()) < 1e-6
