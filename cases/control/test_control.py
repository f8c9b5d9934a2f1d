"""Controls: cases whose verdict is known. A cell in which one of them is off measures its harness, not torch."""

from __future__ import annotations

import ctypes
import time
import warnings
from typing import Any

import pytest

from conformance.incell import limits


def test_passes() -> None:
    """Must pass."""
    assert 1 + 1 == 2


def test_is_wrong() -> None:
    """Must be `wrong`: an assertion of the case fails."""
    assert 1 + 1 == 3


def test_raises() -> None:
    """Must be `raises`: an exception that is no assertion leaves the case."""
    raise RuntimeError("as intended")


def test_skips() -> None:
    """Must be `unsupported`, with its reason."""
    pytest.skip("as intended")


def test_runs_elsewhere(device: Any) -> None:
    """Must be `unexercised` on every device but the CPU: it asks for the device and uses the CPU."""
    import torch  # not above: the processes that the next controls end would import it again

    assert torch.ones(2).sum() == 2


def test_falls_back(device: Any) -> None:
    """Must be `unexercised` on every device but the CPU: an op ran there, and a warning as MPS has it tells of one that fell back."""
    import torch

    torch.ones(2, device=device)
    warnings.warn(
        "The operator 'aten::control' is not currently supported on the MPS backend and will fall back to run on the CPU.", stacklevel=1
    )


def test_crashes() -> None:
    """Must be `crash`: the process reads address zero."""
    ctypes.string_at(0)


@limits(timeout_s=1)
def test_times_out() -> None:
    """Must be `timeout`: it outlasts its limit."""
    time.sleep(30)
