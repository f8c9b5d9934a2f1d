"""torch.export: outputs, devices, decompositions and files of the exported program."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.masks import positions_like
from conformance.incell import catches, requires, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments import weights
from conformance.instruments.capture import Exported, export, runner
from conformance.instruments.generalization import check_generalizes
from conformance.instruments.tracing import check_refused_or_general
from conformance.instruments.weights import uniform

pytestmark = [requires("export"), values, uncounted("torch.export records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]


@dataclasses.dataclass
class Answer:
    """A dataclass that no pytree knows."""

    hidden: Tensor


CONTAINERS: dict[str, Code] = {
    "dict": lambda x: {"hidden": x + 1, "cache": x * 2},
    "nested_cache": lambda x: (x + 1, ((x * 2, x * 3),)),
    "none_in_tuple": lambda x: (x + 1, None),
    "int_in_tuple": lambda x: (x + 1, 3),
    "dataclass": lambda x: Answer(x + 1),
}


class Containing(nn.Module):
    """Answers in a container."""

    def __init__(self, container: str) -> None:
        super().__init__()
        self.make = CONTAINERS[container]

    def forward(self, x: Tensor) -> Any:
        """`x` of any shape."""
        return self.make(x)


class DropsContainer(Containing):
    """Answers with a tensor."""

    def forward(self, x: Tensor) -> Any:
        """`x` of any shape."""
        return x + 1


@pytest.mark.parametrize("container", ["dict", "nested_cache", "none_in_tuple", "int_in_tuple"])
@catches(DropsContainer, build=Containing)
def test_export_keeps_container(build: Code, container: str, device: torch.device, observe: Observe) -> None:
    """An exported program answers in the containers of the module: dict, nested cache, None, numbers.

    The article on tracing OPT; pytorch/pytorch#102878. None and numbers: AssertionError inside torch on 2.1 and 2.2, since 2.3.
    """
    inputs = {"pair": (uniform((2,)).to(device),), "other": (uniform((2,), "other").to(device),)}
    check_generalizes(Containing(container), export(build(container), inputs["pair"]).run, inputs, observe)


@catches(DropsContainer, build=Containing)
def test_unknown_container_is_told(build: Code, device: torch.device, observe: Observe) -> None:
    """A dataclass that no pytree knows is refused at export or answered whole.

    The article on tracing OPT; huggingface/transformers#35291. Refused on 2.1 to 2.15, by five classes of error.
    """
    inputs = {"pair": (uniform((2,)).to(device),)}
    check_refused_or_general(lambda: export(build("dataclass"), inputs["pair"]).run, Containing("dataclass"), inputs, observe)


class PositionsBesideInput(nn.Module):
    """Positions made like the input."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T)`."""
        return x + positions_like(x)


class PositionsOnDevice(nn.Module):
    """Positions made on a device read in Python."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T)`."""
        return x + torch.arange(x.size(-1), device=x.device)


def _devices(program: Any) -> list[str]:
    """Devices that the program's calls name."""
    given = (node.kwargs.get("device") for node in program.graph.nodes)
    return sorted({str(device) for device in given if device is not None})


@catches(PositionsOnDevice, build=PositionsBesideInput)
def test_export_names_no_device(build: Callable[[], nn.Module], device: torch.device, observe: Observe) -> None:
    """A program whose positions are made beside the input names no device.

    pytorch/pytorch#145995. 2.1 to 2.15.
    """
    devices = _devices(export(build(), (uniform((2, 3)).to(device),)).program)
    observe("devices", ", ".join(devices) or "none")
    assert devices == []


def read_calls(program: Any) -> list[str]:
    """The devices that the program's calls name."""
    return _devices(program)


def reads_state(program: Any) -> list[str]:
    """The devices of the program's parameters and buffers: constants that its calls name are not among them."""
    return sorted({str(tensor.device) for tensor in program.state_dict.values()})


@catches(reads_state, read=read_calls)
def test_export_shows_its_devices(read: Code, device: torch.device) -> None:
    """The device that an export froze can be read in the program, before it runs on another one.

    pytorch/pytorch#145995. 2.1 to 2.15.
    """
    program = export(PositionsOnDevice(), (uniform((2, 3)).to(device),)).program
    assert [torch.device(name).type for name in read(program)] == [device.type]


def move_by_pass(program: Any) -> Any:
    """torch's own pass."""
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, "meta")


def moves_state_only(program: Any) -> Any:
    """The state's tensors and not the program's constants."""
    program.state_dict.update({name: tensor.to("meta") for name, tensor in program.state_dict.items()})
    return program


@requires("torch.export.passes.move_to_device_pass")
@catches(moves_state_only, move=move_by_pass)
def test_export_moves_by_pass(move: Code, device: torch.device) -> None:
    """torch's pass moves the devices that an exported program names.

    pytorch/pytorch#145995. Since 2.5, to 2.15.
    """
    program = export(PositionsOnDevice(), (uniform((2, 3)).to(device),)).program
    assert _devices(move(program)) == ["meta"]


class Mixing(nn.Module):
    """Causal self-attention of two heads that takes its sizes from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, 4)`."""
        heads = self.project(x).view(x.size(0), x.size(1), 2, 4).transpose(1, 2)
        at = torch.arange(x.size(1), device=x.device)
        scores = (heads @ heads.transpose(2, 3)).masked_fill(at[None, :] > at[:, None], -torch.inf)
        return scores.softmax(-1) @ heads


def export_within_bounds(module: nn.Module, x: Tensor) -> Exported:
    """Batch and length named, from 2 to 9."""
    return export(module, (x,), ({0: "batch", 1: "length"},), bounds={"batch": (2, 9), "length": (2, 9)})


def exports_the_example(module: nn.Module, x: Tensor) -> Exported:
    """The example's shape."""
    return export(module, (x,))


@catches(Twin(exports_the_example, "raises"), capture=export_within_bounds)
def test_saved_program_keeps_its_range(capture: Callable[..., Exported], device: torch.device, observe: Observe) -> None:
    """An exported program that was saved and loaded serves its range, and refuses what is beyond.

    pytorch/executorch#10552. 2.1 to 2.15.
    """
    module, file = weights.fill(Mixing()).to(device).eval(), io.BytesIO()
    torch.export.save(capture(module, uniform((2, 5, 4)).to(device)).program, file)
    file.seek(0)
    run = runner(torch.export.load(file))
    inputs = {name: (uniform(tuple(map(int, name.split("x"))), name).to(device),) for name in ("2x5x4", "3x2x4", "4x9x4")}
    check_generalizes(module, run, inputs, observe)
    with pytest.raises((RuntimeError, AssertionError)):
        run(uniform((2, 10, 4)).to(device))
