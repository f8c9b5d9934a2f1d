"""`torch.onnx.export` in an environment that has no ONNX package: what its default is, and that it says what it lacks."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches, host, uncounted

Observe = Callable[..., None]


class Flattening(nn.Module):
    """A view by the batch's size."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` `(B, T, C)`."""
        return x.view(x.size(0), -1)


def export_onnx(module: nn.Module, x: Tensor) -> tuple[bytes, str]:
    """The model's bytes, or why there are none."""
    written = io.BytesIO()
    try:
        torch.onnx.export(module, (x,), written)
    except Exception as error:  # each release refuses by a class of its own
        return b"", f"{type(error).__name__}: {error}"
    return written.getvalue(), ""


def exports_on_the_side(module: nn.Module, x: Tensor) -> tuple[bytes, str]:
    """Export as an optional step whose outcome nobody looks at."""
    with contextlib.suppress(Exception):
        torch.onnx.export(module, (x,), io.BytesIO())
    return b"", ""


def _default() -> str:
    parameter: Any = inspect.signature(torch.onnx.export).parameters.get("dynamo")
    return "absent" if parameter is None else str(parameter.default)


@host
@uncounted("an exporter runs")
@catches(exports_on_the_side, export=export_onnx)
def test_onnx_export_says_what_it_lacks(export: Callable[[nn.Module, Tensor], tuple[bytes, str]], observe: Observe) -> None:
    """An ONNX export writes a model or names the package that it lacks; observed is the default of `dynamo`.

    pytorch/pytorch#148886, huggingface/optimum#2219. `dynamo` is absent until 2.3, False on 2.4 to 2.8, True since 2.9; 1.13 writes a
    model without any package, later releases want onnx, and the default of 2.9 and newer onnxscript.
    """
    observe("dynamo", _default())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written, refusal = export(Flattening(), torch.ones(2, 3, 4))
    lacks = re.search(r"\bonnx(script)?\b", refusal)
    observe("lacks", lacks[0] if lacks is not None else "nothing")
    assert written or lacks is not None
