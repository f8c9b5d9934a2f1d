"""Modules by newer names: buffers, functional calls, renamed weights, files that are mapped."""

from __future__ import annotations

import inspect
import mmap
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import functional_call
from conformance.guards.initialisation import keep_ties
from conformance.incell import catches, host, requires, values
from conformance.instruments.weights import uniform


def register(module: nn.Module, tensor: Tensor) -> None:
    """By the method that every release has."""
    module.register_buffer("table", tensor)


def assigns_a_tensor(module: nn.Module, tensor: Tensor) -> None:
    """A plain attribute: it is neither saved nor moved."""
    module.table = tensor


def assign_a_buffer(module: nn.Module, tensor: Tensor) -> None:
    """The newer class."""
    module.table = nn.Buffer(tensor)


def assigns_a_parameter(module: nn.Module, tensor: Tensor) -> None:
    """It is saved and moved, and the optimizer trains it."""
    module.table = nn.Parameter(tensor)


def _check_buffer(attach: Callable[..., None], device: torch.device) -> None:
    module = nn.Module()
    attach(module, torch.ones(2, device=device))
    assert list(module.state_dict()) == ["table"]
    assert list(module.parameters()) == []
    assert module.to("meta").table.is_meta


@catches(assigns_a_tensor, assigns_a_parameter, attach=register)
def test_registered_buffer(attach: Callable[..., None], device: torch.device) -> None:
    """A table that is registered is saved and moved with its module, and no optimizer sees it.

    torch documentation. 1.13 to 2.15.
    """
    _check_buffer(attach, device)


@requires("torch.nn.Buffer")
@catches(assigns_a_tensor, assigns_a_parameter, attach=assign_a_buffer)
def test_assigned_buffer_native(attach: Callable[..., None], device: torch.device) -> None:
    """An `nn.Buffer` that is assigned is a registered buffer.

    torch documentation: since 2.5.
    """
    _check_buffer(attach, device)


class Tied(nn.Module):
    """Two layers of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """Twice."""
        return self.second(self.first(x))


Call = Callable[..., Any]


def call_stateless(module: nn.Module, state: dict[str, Tensor], arguments: tuple[Any, ...]) -> Any:
    """The older name."""
    from torch.nn.utils import stateless

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return stateless.functional_call(module, state, arguments)


def replaces_one_place(module: nn.Module, state: dict[str, Tensor], arguments: tuple[Any, ...]) -> Any:
    """Each name once, in a module whose names do not tell that a weight is tied."""
    held = {name: module.get_submodule(name.rpartition(".")[0])._parameters for name in state}
    before = {name: held[name]["weight"] for name in state}
    for name, tensor in state.items():
        held[name]["weight"] = tensor  # type: ignore[assignment]
    try:
        return module(*arguments)
    finally:
        for name in state:
            held[name]["weight"] = before[name]


def _check_tied_call(call: Call, device: torch.device) -> None:
    module = keep_ties(Tied(), lambda tied: tied.to(device))  # on XLA `.to` gives each place a parameter of its own
    twice = 2 * torch.eye(2, device=device)
    out = call(module, {"first.weight": twice.requires_grad_()}, (torch.ones(1, 2, device=device),))
    assert out.tolist() == [[4.0, 4.0]]
    assert module.first.weight is module.second.weight
    assert module.first.weight is not twice


@values
@catches(replaces_one_place, call=functional_call)
def test_functional_call_of_tied_weights(call: Call, device: torch.device) -> None:
    """A weight given to a functional call is used in all places where it is tied, and the module is as before.

    torch documentation of `torch.func.functional_call`, since 2.0. 1.13 to 2.15.
    """
    _check_tied_call(call, device)


@values
@catches(replaces_one_place, call=call_stateless)
def test_functional_call_stateless_native(call: Call, device: torch.device) -> None:
    """`torch.nn.utils.stateless.functional_call` uses a weight in all places where it is tied.

    Observed here: one place alone on 1.13, in silence; all since 2.0, where the name is deprecated.
    """
    _check_tied_call(call, device)


def old_weight_norm() -> nn.Module:
    """The module that wrote the checkpoint."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.weight_norm(nn.Linear(3, 2))


def into_parametrized(state: dict[str, Tensor]) -> nn.Module:
    """The newer one reads the older one's names."""
    module = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    module.load_state_dict(state)
    return module


def into_plain_without_strict(state: dict[str, Tensor]) -> nn.Module:
    """What does not fit is passed over: the bias is loaded, the weight is as it was drawn."""
    module = nn.Linear(3, 2)
    module.load_state_dict(state, strict=False)
    return module


@values
@requires("torch.nn.utils.parametrizations.weight_norm")
@catches(into_plain_without_strict, load=into_parametrized)
def test_weight_norm_reads_old_checkpoints(load: Callable[..., nn.Module], device: torch.device) -> None:
    """A checkpoint of `nn.utils.weight_norm` goes into the parametrized one, which answers alike.

    torch documentation: since 2.1; the older name warns since then, observed here.
    """
    old, x = old_weight_norm().to(device), uniform((4, 3), "x").to(device)
    torch.testing.assert_close(load(old.state_dict()).to(device)(x), old(x))


def map_privately(path: pathlib.Path) -> Tensor:
    """torch's own mapping; a path as text, since 2.1 to 2.3 take no other."""
    found: Tensor = torch.load(str(path), mmap=True, weights_only=True)["weight"]
    return found


def maps_for_all(path: pathlib.Path) -> Tensor:
    """The file's own bytes, writable."""
    at = path.read_bytes().index(torch.arange(4.0).numpy().tobytes())
    with path.open("r+b") as file:
        return torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.float32, count=4, offset=at)


@host
@catches(maps_for_all, load=map_privately)
def test_mapped_checkpoint_stays(load: Callable[[pathlib.Path], Tensor], tmp_path: pathlib.Path) -> None:
    """Training on weights that are mapped from a file leaves the file as it was.

    torch documentation: `torch.load(mmap=True)` since 2.1.
    """
    if "mmap" not in inspect.signature(torch.load).parameters:
        pytest.skip("torch.load takes no mmap")
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.arange(4.0)}, path)
    load(path).add_(1.0)
    assert torch.load(path, weights_only=True)["weight"].tolist() == [0.0, 1.0, 2.0, 3.0]
