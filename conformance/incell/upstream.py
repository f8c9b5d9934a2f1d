"""What PyTorch's own test lists say of MPS, op by op and dtype by dtype, executed from the installed release without a Mac.

`python -m conformance.incell.upstream MACOS OUT` writes {OpInfo name: {dtype: [forward, backward]}} with a word each: `pass`; `unsupported`
where the list of what is not implemented has it; `differs` where a list of other reasons has it (other numbers, random numbers, the CPU's
own errors); `skip`. Torch 2.8 and later bring the lists (torch/testing/_internal/common_mps.py); they define nothing unless MPS is
available, so it is made to look so.
"""

from __future__ import annotations

import copy
import json
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch

from conformance.incell.upstreamwords import DTYPES

#: The method of upstream's test class for each phase.
_TESTS = {"forward": "test_output_match", "backward": "test_output_grad_match"}
#: Names of lists that hold what fails for another reason than that it is not there.
_OTHER_REASONS = ("UNDEFINED", "SKIP")


@contextmanager
def pretended(macos: float) -> Iterator[None]:
    """Inside, torch says that MPS is available on that macOS; no op may be run on it."""

    def newer(major: int, minor: int = 0) -> bool:
        return macos >= float(f"{major}.{minor}")

    mps: Any = torch.backends.mps
    patches = [
        mock.patch.object(mps, "is_available", _cached(lambda: True)),
        mock.patch.object(mps, "is_macos_or_newer", newer, create=True),
    ]
    patches += [mock.patch.object(mps, "is_macos13_or_newer", lambda minor=0: newer(13, minor), create=True)]
    patches += [mock.patch.object(torch._C, "_mps_is_on_macos_or_newer", newer, create=True)]
    patches += [mock.patch.object(torch._C, "_mps_get_name", return_value="Apple M1", create=True)]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def _cached(function: Callable[[], bool]) -> Any:
    """With the attribute that torch 2.14 looks for on what it has cached."""
    function.__wrapped__ = function  # type: ignore[attr-defined]
    return function


def lists(macos: float) -> dict[str, dict[str, list[str]]]:
    """The words for every OpInfo and dtype. Raises ImportError before torch 2.8."""
    from torch.testing._internal import common_utils

    common_utils.MACOS_VERSION = macos
    with pretended(macos):
        from torch.testing._internal import common_mps
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, dict[str, list[str]]] = {}
    modifiers = (common_mps.mps_ops_modifier, common_mps.mps_ops_grad_modifier)
    for phase, chosen in (("forward", modifiers[:1]), ("backward", modifiers)):
        ops = [copy.copy(op) for op in op_db]
        with pretended(macos):
            reasons = [_executed(modifier, ops) for modifier in chosen]
        for op in ops:
            name = op.name + op.variant_test_name
            for dtype in DTYPES:
                word = _word(op, name, getattr(torch, dtype), phase, reasons)
                found.setdefault(name, {}).setdefault(dtype, []).append(word)
    return found


def _executed(modifier: Callable[..., Any], ops: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
    """Run a modifier, and return the lists that it held when it ended, by name: conditions on macOS are settled in them."""
    held: dict[str, Mapping[str, Any]] = {}

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame.f_code is modifier.__code__:
            held.update({name: value for name, value in frame.f_locals.items() if name.isupper() and isinstance(value, dict)})

    sys.setprofile(watch)
    try:
        modifier(ops)
    finally:
        sys.setprofile(None)
    return held


def _word(op: Any, name: str, dtype: torch.dtype, phase: str, reasons: Sequence[Mapping[str, Mapping[str, Any]]]) -> str:
    if dtype not in op.supported_dtypes("cpu") or (phase == "backward" and (not dtype.is_floating_point or not op.supports_autograd)):
        return "skip"
    active = [each for decorator in op.decorators for each in _active(decorator, phase, dtype)]
    if any(_skips(each) for each in active):
        return "skip"
    if unittest.expectedFailure not in active:
        return "pass"
    named = [
        which for lists in reasons for which, listed in lists.items() if name in listed and (listed[name] is None or dtype in listed[name])
    ]
    other = [any(word in which for word in _OTHER_REASONS) for which in named]
    return "differs" if named and all(other) else "unsupported"


def _active(decorator: Any, phase: str, dtype: torch.dtype) -> list[Any]:
    if not hasattr(decorator, "is_active"):
        return []
    return list(decorator.decorators) if decorator.is_active("TestConsistency", _TESTS[phase], "mps", dtype, {}) else []


def _skips(decorator: Any) -> bool:
    """Whether a decorator is unittest's skip, bare or with a reason: it is closed over nothing else that we have."""
    return decorator is unittest.skip or getattr(decorator, "__qualname__", "").startswith("skip")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    Path(sys.argv[2]).write_text(json.dumps(lists(float(sys.argv[1]))), encoding="utf-8")
