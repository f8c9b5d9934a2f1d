"""The sweep finds each of the fourteen faults, and nothing on a clean CPU. Run where op_db can be imported."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from faults import FAULTS
from torch.utils._pytree import tree_flatten

from conformance.instruments import opinfo
from conformance.instruments.opcalls import Call
from conformance.instruments.opsweep import Sweep

CASES = Path(__file__).parent.parent.parent / "cases" / "mps"
CPU = torch.device("cpu")

#: Issue -> ops of op_db whose sweep must find it, with the dtype.
SWEPT = {
    "#118115 addcdiv_, addcmul_": (("addcdiv", "addcmul"), torch.float32),
    "#165257 normal_, uniform_": (("normal", "uniform"), torch.float32),
    "#150967 where": (("where",), torch.float32),
    "#162730 linear": (("nn.functional.linear",), torch.float32),
    "#130295 max and NaN": (("max", "amax", "maximum", "argmax"), torch.float32),
    "#90273 max of int64": (("max", "amax", "argmax"), torch.int64),
    "#192212 conv2d": (("nn.functional.conv2d",), torch.float32),
}
#: Issue -> file, case, its native idiom, and how the case is called with it.
PROBED: dict[str, tuple[str, str, str, Callable[[Any, Any], Any]]] = {
    "#163597 attention": (
        "test_attention",
        "test_permuted_heads_attend",
        "attend_natively",
        lambda case, run: case(run, length=40, causal=False, device=CPU),
    ),
    "#132732 sum in 5-D": (
        "test_reductions",
        "test_five_dimensions_reduce",
        "reduce_dimension",
        lambda case, run: case(run, op="sum", device=CPU),
    ),
    "#78915 topk": ("test_reductions", "test_topk_takes_as_many_as_asked", "take_natively", lambda case, run: case(run, device=CPU)),
    "#196067 lerp_": (
        "test_optimisers",
        "test_average_by_a_wider_weight_native",
        "move_natively",
        lambda case, run: case(run, device=CPU, dtype=torch.bfloat16),
    ),
    "#129207 channels": (
        "test_limits",
        "test_convolution_to_many_channels_native",
        "convolve_natively",
        lambda case, run: case(run, device=CPU),
    ),
    "#189495 rows": (
        "test_limits",
        "test_linear_takes_more_than_65536_rows",
        "map_rows_natively",
        lambda case, run: case(run, device=CPU),
    ),
    "#183885 argsort": ("test_limits", "test_millions_are_sorted", "sort_natively", lambda case, run: case(run, device=CPU)),
}


def _swept(run: Callable[[Call], Any], name: str, dtype: torch.dtype) -> Sweep:
    torch.manual_seed(0)
    sweep = Sweep(run, CPU, dtype, deep=True)
    for entry in opinfo.infos(name):
        sweep.check(entry)
        if sweep.wrong:
            break
    return sweep


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"mps_{name}", CASES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_fourteen() -> None:
    assert len(FAULTS) == 14
    assert sorted([*SWEPT, *PROBED]) == sorted(FAULTS)


@pytest.mark.parametrize(("fault", "name"), [(fault, name) for fault, (names, _) in SWEPT.items() for name in names])
def test_the_sweep_of_an_op_finds_it(fault: str, name: str) -> None:
    def broken(call: Call) -> Any:
        with FAULTS[fault]():
            return call()

    dtype = SWEPT[fault][1]
    found = _swept(broken, name, dtype)
    assert found.wrong, f"checked {found.checked} calls"
    clean = _swept(lambda call: call(), name, dtype)
    assert (clean.wrong, clean.raised) == ("", None)
    assert clean.checked >= 3


@pytest.mark.parametrize("fault", PROBED)
def test_a_case_of_its_own_finds_it(fault: str) -> None:
    file, name, idiom, ask = PROBED[fault]
    module = _module(file)
    native = getattr(module, idiom)

    def broken(*args: Any, **kwargs: Any) -> Any:
        with FAULTS[fault]():
            return native(*args, **kwargs)

    with pytest.raises(AssertionError):
        ask(getattr(module, name), broken)
    ask(getattr(module, name), native)


def test_an_op_without_float64_says_so_and_is_checked_all_the_same() -> None:
    def without_float64(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:
            raise NotImplementedError
        return x + 1

    sample = SimpleNamespace(input=torch.ones(2, 3), args=(), kwargs={}, broadcasts_input=False)
    entry = SimpleNamespace(
        name="plus_one",
        variant_test_name="",
        op=without_float64,
        supported_dtypes=lambda device: {torch.float32},
        sample_inputs_func=lambda *args, **kwargs: iter([sample]),
        get_inplace=lambda: None,
    )
    right, wrong = (Sweep(run, CPU, torch.float32, deep=False) for run in (lambda call: call(), lambda call: call() + 1))
    for sweep in (right, wrong):
        sweep.check(entry)
    assert (right.wrong, right.raised, right.narrow) == ("", None, "in float64 the CPU raises NotImplementedError")
    assert wrong.wrong.startswith("plus_one, sample 0, plain: 3 at [0, 0], not 2")


def test_samples_are_those_that_the_method_gives() -> None:
    names = ("add", "linalg.qr", "nn.functional.conv2d", "nn.functional.dropout", "multinomial", "index_put", "histogramdd", "to_sparse")
    for info in (info for name in names for info in opinfo.infos(name)):
        torch.manual_seed(0)
        given = list(itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=False), 3))
        torch.manual_seed(0)
        made = list(opinfo.samples(info, torch.float32, 3))
        for mine, theirs in zip(made, given):
            leaves = [tree_flatten((sample.input, sample.args, sample.kwargs))[0] for sample in (mine, theirs)]
            torch.testing.assert_close(*leaves, rtol=0, atol=0, equal_nan=True)
        assert len(made) == len(given) > 0


def test_names_read_from_source_are_those_of_the_list() -> None:
    assert len(opinfo.op_names()) > 500
    assert opinfo.op_names() == opinfo.listed_names()
