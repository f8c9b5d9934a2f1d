"""Every op that torch has samples for, run on the device and held against float64 on the CPU: what was observed, not what is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from conformance.incell import catches, limits, requires
from conformance.incell.settings import load
from conformance.instruments import opinfo
from conformance.instruments.opcalls import Call
from conformance.instruments.opsweep import Sweep

#: float32 is always swept; the others at --depth deep.
DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
#: At the default depth every so manieth op is given its wrong twins: they test the comparison, which all ops share.
TWINS_OF_EACH = 25


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """An op and a dtype a case; which ops there are is read from the release itself."""
    if "element" not in metafunc.fixturenames:
        return
    settings = load()
    deep, twins = settings.depth == "deep", settings.twins or metafunc.config.getoption("--twins")
    names = opinfo.op_names()[:: 1 if deep or not twins else TWINS_OF_EACH]
    wanted = [(name, dtype) for name in names for dtype in (DTYPES if deep else DTYPES[:1])]
    metafunc.parametrize(("op", "element"), wanted, ids=[f"{name.replace('.', '_')}-{dtype}" for name, dtype in wanted])


def call_natively(call: Call) -> Any:
    """As torch has it."""
    return call()


def is_off_by_one(call: Call) -> Any:
    """Every number is one too large, every truth value the other one."""
    return _changed(call, lambda x: x.logical_not() if x.dtype is torch.bool else x + torch.ones_like(x))


def widens(call: Call) -> Any:
    """The result comes back in a dtype that the backend has, not in the one that was asked for."""
    return _changed(call, lambda x: x.to(torch.complex64 if x.dtype is torch.complex128 else torch.complex128))


def _changed(call: Call, change: Callable[[Tensor], Tensor]) -> Any:
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, call())


@limits(cases_per_worker=1000)
@requires(*opinfo.REQUIREMENTS)
@catches(widens, is_off_by_one, run=call_natively)
def test_op(run: Callable[[Call], Any], op: str, element: str, device: torch.device, depth: str, observe: Callable[..., None]) -> None:
    """An op gives float64's numbers for plain, transposed and in-place calls; on meta its shape, dtype and strides.

    What plain samples miss: pytorch/pytorch#118115 (in place), pytorch/pytorch#150967, pytorch/pytorch#162779 (layouts),
    pytorch/pytorch#130295 (NaN), pytorch/pytorch#165257 (random numbers in place). At --depth deep all samples, dtypes, and
    the layouts permuted, sliced and expanded, and NaN. Tolerances: conformance.instruments.opresults. Observed on 2.1 to 2.15.
    """
    sweep = Sweep(run, device, getattr(torch, element), deep=depth == "deep")
    for entry in opinfo.infos(op):
        sweep.check(entry)
        if sweep.wrong:
            break
    if sweep.narrow:
        observe("reference", f"{element} on the CPU, since {sweep.narrow}")
    assert not sweep.wrong, sweep.wrong
    if sweep.raised is not None:
        raise sweep.raised
    if not sweep.checked:
        pytest.skip(sweep.refused or f"op_db has no samples of it in {element}")
    if run is is_off_by_one and not sweep.foretold:
        pytest.skip("no number of it can be foretold: it is random, or memory that nobody wrote")
