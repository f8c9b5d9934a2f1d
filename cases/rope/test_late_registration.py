"""A table that is registered late, or again: what it is then, and whether it enters the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches
from conformance.incell.marks import Twin
from conformance.instruments import rotation

Build = Callable[..., Any]


def table(rows: int, device: Any) -> Tensor:
    """Cosines `(rows, 2)`, float32."""
    return rotation.angles(range(rows), 4).cos().float().to(device)


class Model(nn.Module):
    """A table in a non-persistent buffer; a longer one is assigned to it. Subclasses do either in another way."""

    cos: Any

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.device = device
        self.keep(table(8, device))

    def keep(self, cos: Tensor) -> None:
        """Keep the table for the first time."""
        self.register_buffer("cos", cos, persistent=False)

    def grow(self, rows: int) -> None:
        """Keep a longer table."""
        self.cos = table(rows, self.device)


class RegistersNoneFirst(Model):
    """The lazy table: the name is registered without a tensor, and assigned later."""

    def keep(self, cos: Tensor) -> None:
        """Announce the buffer."""
        self.register_buffer("cos", None, persistent=False)


class RegistersOverAnAttribute(Model):
    """`self.cos = None` first, `register_buffer` when the first input comes."""

    def keep(self, cos: Tensor) -> None:
        """Remember that there is no table yet."""
        self.cos = None

    def grow(self, rows: int) -> None:
        """Register the table now."""
        self.register_buffer("cos", table(rows, self.device), persistent=False)


class AssignsOverAnAttribute(RegistersOverAnAttribute):
    """`self.cos = None` first, an assignment when the first input comes."""

    def grow(self, rows: int) -> None:
        """Assign the table now."""
        self.cos = table(rows, self.device)


@catches(Twin(RegistersOverAnAttribute, "raises"), AssignsOverAnAttribute, build=RegistersNoneFirst)
def test_lazy_table_becomes_a_buffer(build: Build, device: torch.device) -> None:
    """A table made at the first input is a non-persistent buffer if its name was registered as None at construction.

    karpathy/nanochat#520: over a plain attribute register_buffer raises KeyError, and an assignment registers nothing. 1.13 to 2.15.
    """
    model = build(device)
    model.grow(8)
    assert [name for name, _ in model.named_buffers()] == ["cos"]
    assert "cos" not in model.state_dict()


class RegistersAgain(Model):
    """Grows by registering again, with all that was said the first time."""

    def grow(self, rows: int) -> None:
        """Register a longer table."""
        self.register_buffer("cos", table(rows, self.device), persistent=False)


class ForgetsPersistence(Model):
    """Grows by registering again, and forgets `persistent=False`."""

    def grow(self, rows: int) -> None:
        """Register a longer table."""
        self.register_buffer("cos", table(rows, self.device))


def _check_keys_stay(build: Build, device: torch.device) -> None:
    model = build(device)
    before = list(model.state_dict())
    model.grow(32)
    assert [name for name, _ in model.named_buffers()] == ["cos"]
    assert list(model.state_dict()) == before


@catches(ForgetsPersistence, build=Model)
def test_keys_stay_when_a_table_is_assigned(build: Build, device: torch.device) -> None:
    """Assigning a longer table to a registered buffer keeps it a buffer, and the state dict's keys as they were.

    karpathy/nanochat#520. Holds on 1.13 to 2.15.
    """
    _check_keys_stay(build, device)


@catches(ForgetsPersistence, build=RegistersAgain)
def test_keys_stay_when_a_table_is_registered_again(build: Build, device: torch.device) -> None:
    """Registering a buffer a second time is allowed, and non-persistent only if that is said again.

    karpathy/nanochat#520. Holds on 1.13 to 2.15.
    """
    _check_keys_stay(build, device)
