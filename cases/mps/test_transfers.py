"""Moving data: copies that nobody waits for, pinned memory, loaders, checkpoints and optimizer state that change device."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from conformance.guards import to_device
from conformance.incell import catches, host, values
from conformance.incell.marks import Twin
from conformance.instruments.dispatching import elsewhere, recorded

Observe = Callable[..., None]


def moves_pageable_memory_without_waiting(x: Tensor, device: torch.device, *, non_blocking: bool) -> Tensor:
    """The source may be freed or written before the copy has run."""
    return x.to(device, non_blocking=non_blocking)


@catches(moves_pageable_memory_without_waiting, move=to_device)
def test_unawaited_copy_is_of_pinned_memory(move: Callable[..., Tensor], device: torch.device) -> None:
    """A copy to the device that is not waited for reads pinned memory; from any other it is waited for.

    pytorch/pytorch#139550, pytorch/pytorch#189690: on MPS it reads memory that was freed, in silence. Guard `to_device`, 1.13 to 2.15.
    """
    target = elsewhere(device)
    with recorded(target) as seen:
        moved = move(torch.arange(8.0), target, non_blocking=True)
    copies = seen.of("copy")
    assert moved.device.type == target.type
    assert len(copies) == 1
    assert all("pinned" in copy or "non_blocking" not in copy for copy in copies)


def reads_before_the_copy_has_run(x: Tensor, device: torch.device, *, non_blocking: bool) -> Tensor:
    """The host has the tensor at once, and its numbers later."""
    return x.to(device, non_blocking=non_blocking)


@values
@catches(reads_before_the_copy_has_run, move=to_device)
def test_copy_to_the_host_is_awaited(move: Callable[..., Tensor], device: torch.device) -> None:
    """A tensor brought to the host has its numbers when the host reads them, whatever the caller asked for.

    pytorch/pytorch#86264, sgl-project/sglang#16493. Guard `to_device`, 1.13 to 2.15.
    """
    x = torch.arange(8.0, device=device) * 2
    with recorded(device) as seen:
        numbers = move(x, torch.device("cpu"), non_blocking=True)
    assert seen.of("unawaited") == []
    assert numbers.tolist() == [2.0 * n for n in range(8)]


def _accelerated() -> bool:
    xpu, mps = getattr(torch, "xpu", None), getattr(torch.backends, "mps", None)
    return torch.cuda.is_available() or bool(xpu and xpu.is_available()) or bool(mps and mps.is_available())


def load_through_loader(rows: list[Tensor]) -> DataLoader[Any]:
    """The loader pins where there is something to pin for."""
    return DataLoader(rows, batch_size=2, pin_memory=_accelerated())  # type: ignore[arg-type]


def pins_in_collate(rows: list[Tensor]) -> DataLoader[Any]:
    """Pins by hand."""
    return DataLoader(rows, batch_size=2, collate_fn=lambda batch: torch.stack(batch).pin_memory())  # type: ignore[arg-type]


@host
@catches(Twin(pins_in_collate, "raises"), loader=load_through_loader)
def test_loader_pins_where_it_can(loader: Callable[..., Any], observe: Observe) -> None:
    """A loader that pins only beside an accelerator loads without one, and warns of nothing.

    Observed on a host without accelerator, 1.13 to 2.15: `pin_memory()` raises, each release in other words;
    `DataLoader(pin_memory=True)` leaves batches unpinned, without a word until 2.6 and with a warning since 2.8.
    """
    if _accelerated():
        pytest.skip("there is an accelerator here")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asked = next(iter(DataLoader([torch.ones(1)] * 2, pin_memory=True)))  # type: ignore[arg-type]
        observe("warnings_where_asked", len(caught))
        observe("pinned_where_asked", bool(asked.is_pinned()))
        caught.clear()
        batches = [batch.flatten().tolist() for batch in loader([torch.full((1,), float(n)) for n in range(4)])]
    assert ([str(warning.message) for warning in caught], batches) == ([], [[0.0, 1.0], [2.0, 3.0]])


def copy_into_parameters(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Copies numbers; parameters stay where they are."""
    module.load_state_dict(state)


def replaces_parameters(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Puts the checkpoint's tensors, and their device, in place of the module's."""
    for name, tensor in state.items():
        setattr(module, name, nn.Parameter(tensor))


@catches(replaces_parameters, load=copy_into_parameters)
def test_checkpoint_of_the_host_loads_in_place(load: Callable[..., None], device: torch.device) -> None:
    """A checkpoint read onto the host leaves the module on its device.

    karpathy/nanochat#244 (checkpoints for a Mac). 1.13 to 2.15.
    """
    target = elsewhere(device)
    file = io.BytesIO()
    torch.save(nn.Linear(2, 2).state_dict(), file)
    file.seek(0)
    module = nn.Linear(2, 2).to(target)
    load(module, torch.load(file, map_location="cpu"))
    assert {parameter.device.type for parameter in module.parameters()} == {target.type}


def restore_after_the_move(state: dict[str, Any], device: torch.device) -> torch.optim.Optimizer:
    """Move the model, make the optimizer, load its state: the state goes where the parameters are."""
    model = nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.load_state_dict(state)
    return optimizer


def restores_before_the_move(state: dict[str, Any], device: torch.device) -> torch.optim.Optimizer:
    """Moving the model afterwards leaves the state behind."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.load_state_dict(state)
    for parameter in model.parameters():
        parameter.data = parameter.data.to("cpu")
    moved = torch.optim.SGD(model.to(device).parameters(), lr=0.1, momentum=0.9)
    for parameter, kept in zip(model.parameters(), optimizer.state.values()):
        moved.state[parameter] = kept
    return moved


@catches(restores_before_the_move, restore=restore_after_the_move)
def test_optimizer_state_follows_its_parameters(restore: Callable[..., torch.optim.Optimizer], device: torch.device) -> None:
    """The momentum of a restored optimizer is on the device of its parameter.

    pytorch/pytorch#2830. 1.13 to 2.15.
    """
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    target = elsewhere(device)
    restored = restore(optimizer.state_dict(), target)
    buffers = [state["momentum_buffer"].device.type for state in restored.state.values()]
    assert buffers == [target.type] * 2


def copy_to_its_device(x: Tensor) -> Tensor:
    """A copy, wherever it was."""
    return x.to(x.device, copy=True)


def moves_to_its_device(x: Tensor) -> Tensor:
    """A tensor that is there already is given back itself."""
    return x.to(x.device)


def makes_contiguous(x: Tensor) -> Tensor:
    """So is one that is contiguous already."""
    return x.contiguous()


@values
@catches(moves_to_its_device, makes_contiguous, copy=copy_to_its_device)
def test_moved_batch_is_a_copy(copy: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """An in-place op on a batch that was moved leaves the source, though source and target are one device.

    Observed on 1.13 to 2.15: code that relies on `.to(device)` for a copy is right on a GPU and wrong on the CPU.
    """
    source = torch.zeros(3, device=device)
    copy(source).add_(1.0)
    assert source.tolist() == [0.0, 0.0, 0.0]


def clone_weights(model: nn.Module) -> dict[str, Tensor]:
    """Numbers of this moment."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def keeps_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The live parameters, under their names."""
    return model.state_dict()


def copies_the_dict(model: nn.Module) -> dict[str, Tensor]:
    """Another dict of the live parameters."""
    return dict(model.state_dict())


@values
@catches(keeps_state_dict, copies_the_dict, keep=clone_weights)
def test_best_weights_are_kept(keep: Callable[[nn.Module], dict[str, Tensor]], device: torch.device) -> None:
    """The weights kept as the best so far do not follow the training that goes on.

    Observed on 1.13 to 2.15: a state dict shares the parameters' memory.
    """
    model = nn.Linear(2, 1, device=device)
    before = model.weight.detach().cpu().clone()
    kept = keep(model)
    with torch.no_grad():
        model.weight.add_(1.0)
    assert torch.equal(kept["weight"].cpu(), before)
