"""Plain OpInfo under pytest, for benchmarks/sweep.py: the first samples of each op in float32 on the CPU, against float64."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

SAMPLES = int(os.environ.get("SAMPLES", "3"))
INFOS = [info for info in op_db if torch.float32 in info.supported_dtypes("cpu")]


def _wide(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32 else leaf


@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.formatted_name)
def test_op(info: Any) -> None:
    for sample in itertools.islice(info.sample_inputs("cpu", torch.float32, requires_grad=False), SAMPLES):
        wide = tree_map(_wide, (sample.input, sample.args, sample.kwargs))
        expected = info.op(wide[0], *wide[1], **wide[2])
        got = info.op(sample.input, *sample.args, **sample.kwargs)
        torch.testing.assert_close(got, expected, check_dtype=False, equal_nan=True, rtol=2e-4, atol=2e-4)
