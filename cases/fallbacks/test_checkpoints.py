"""Loading one's own checkpoints: what each release refuses of them, and the guard that answers alike on all."""

from __future__ import annotations

import collections
import io
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from conformance.guards import load_checkpoint
from conformance.incell import Twin, catches, host

pytestmark = host

Load = Callable[[Any], Any]


def saved(content: object) -> io.BytesIO:
    """What torch.save writes, ready to be read."""
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return file


def alike(first: Any, second: Any) -> bool:
    """Equal in type and content, through containers, tensors and arrays."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
    if type(first).__module__ == "numpy" and hasattr(first, "tobytes"):
        return type(first) is type(second) and first.dtype == second.dtype and first.tobytes() == second.tobytes()
    if isinstance(first, dict):
        return type(first) is type(second) and list(first) == list(second) and all(alike(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and len(first) == len(second) and all(map(alike, first, second))
    return type(first) is type(second) and bool(first == second)


def _numpy_content(kind: str) -> Any:
    numpy = pytest.importorskip("numpy")
    return {
        "rng_state": lambda: {"torch": torch.get_rng_state(), "numpy": numpy.random.get_state(), "python": random.getstate()},
        "float": lambda: {"loss": numpy.float64(1.5), "rate": numpy.float32(0.1)},
        "bool_and_int": lambda: {"best": numpy.bool_(True), "step": numpy.int64(3)},
        "array": lambda: {"curve": numpy.arange(4.0), "mask": numpy.array([True, False]), "codes": numpy.arange(3, dtype="uint16")},
    }[kind]()


def loads_weights_only(file: Any) -> Any:
    """torch's own restricted loading knows no numpy."""
    return torch.load(file, weights_only=True)


NUMPY = pytest.mark.parametrize("kind", ["rng_state", "float", "bool_and_int", "array"])


@NUMPY
@catches(Twin(loads_weights_only, "raises"), load=load_checkpoint)
def test_numpy_in_a_checkpoint(load: Load, kind: str) -> None:
    """RNG states, numpy scalars and arrays come back from a checkpoint as they were.

    huggingface/transformers#40500, huggingface/accelerate#3036, deepmodeling/deepmd-kit#4147. 1.13 to 2.15.
    """
    content = _numpy_content(kind)
    assert alike(load(saved(content)), content)


@NUMPY
def test_numpy_in_a_checkpoint_native(kind: str) -> None:
    """`torch.load(file)` gives RNG states and numpy content back.

    huggingface/transformers#40500: UnpicklingError since 2.6, where its default became `weights_only=True`.
    """
    content = _numpy_content(kind)
    assert alike(torch.load(saved(content)), content)


def trust_own_file(file: Any) -> Any:
    """A file that this program wrote itself."""
    return torch.load(file, weights_only=False)


def keeps_tensors_alone(file: Any) -> Any:
    """Everything that is no tensor is left behind."""
    return {name: value for name, value in torch.load(file, weights_only=False).items() if isinstance(value, torch.Tensor)}


@catches(keeps_tensors_alone, load=trust_own_file)
def test_own_file_loads_whole(load: Load) -> None:
    """A file of one's own loads whole with `weights_only=False`, a keyword of every release.

    huggingface/transformers#40500. 1.13 to 2.15.
    """
    content = _numpy_content("rng_state")
    assert alike(load(saved(content)), content)


def test_tensor_rng_state_native() -> None:
    """`torch.load(file)` gives torch's own RNG state back: it is a tensor.

    huggingface/transformers#40500. 1.13 to 2.15.
    """
    content = {"torch": torch.get_rng_state()}
    assert alike(torch.load(saved(content)), content)


def _stepped(make: Callable[[torch.optim.Optimizer], Any]) -> dict[str, Any]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.5)
    scheduler = make(optimizer)
    optimizer.step()
    scheduler.step()
    state: dict[str, Any] = scheduler.state_dict()
    return state


def _adamw() -> dict[str, Any]:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    state: dict[str, Any] = optimizer.state_dict()
    return state


LR = torch.optim.lr_scheduler
PLAIN: dict[str, Callable[[], Any]] = {
    "adamw": _adamw,
    "step": lambda: _stepped(lambda optimizer: LR.StepLR(optimizer, 1)),
    "milestones": lambda: _stepped(lambda optimizer: LR.MultiStepLR(optimizer, [2, 3])),
    "lambda": lambda: _stepped(lambda optimizer: LR.LambdaLR(optimizer, lambda epoch: 0.5)),
    "cosine": lambda: _stepped(lambda optimizer: LR.CosineAnnealingLR(optimizer, 4)),
    "sets": lambda: {"seen": {1, 2}, "frozen": frozenset({3}), "counts": collections.Counter("aab")},
    "numbers": lambda: {"z": 1j, "big": 1 << 70, "raw": b"\x00\xff", "buffer": bytearray(b"x"), "none": None},
    "torch": lambda: {"dtype": torch.bfloat16, "device": torch.device("cpu"), "size": torch.Size([2, 3])},
}


@pytest.mark.parametrize("kind", list(PLAIN))
@catches(keeps_tensors_alone, load=load_checkpoint)
def test_plain_state_in_a_checkpoint(load: Load, kind: str) -> None:
    """States of optimizers and schedulers, sets, counters, bytes and torch's own names come back as they were.

    pytorch/pytorch#86812 (what the first weights_only knew). Observed here: it refuses states of optimizers on 1.13, MultiStepLR's
    counter and devices until 2.2, sets and bytes until 2.4. 1.13 to 2.15.
    """
    content = PLAIN[kind]()
    assert alike(load(saved(content)), content)


@pytest.mark.parametrize("kind", list(PLAIN))
def test_plain_state_weights_only_native(kind: str) -> None:
    """`torch.load(file, weights_only=True)` gives plain state back.

    pytorch/pytorch#86812, pytorch/pytorch#134346. Each release knows more: on 2.6 and later all but frozensets.
    """
    content = PLAIN[kind]()
    assert alike(torch.load(saved(content), weights_only=True), content)
