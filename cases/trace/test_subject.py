"""Checks of any model as a torch.fx graph and as an ONNX model: on inputs that it was not captured with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, host, limits, subjects, uncounted, values
from conformance.instruments.models import check_model
from conformance.instruments.onnx_programs import onnx_program
from conformance.instruments.snapshots import tensors_of
from conformance.instruments.symbolic import symbolic

pytestmark = [values, uncounted("a tracer records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]

#: ONNX runtimes order their sums otherwise than torch does.
ONNX_TOLERANCE = 1e-4


def _cropped(inputs: tuple[Tensor, ...], example: tuple[Tensor, ...]) -> list[Tensor]:
    """Each input cut to the sizes of the example's."""
    return [x[tuple(slice(0, size) for size in e.shape)] for x, e in zip(inputs, example)]


def keeps_sizes_of_example(model: nn.Module, example: tuple[Tensor, ...]) -> Code:
    """A program specialised to the sizes that it was captured with."""
    return lambda *inputs: model(*_cropped(inputs, example))


@subjects()
@catches(keeps_sizes_of_example, capture=symbolic)
def test_subject_fx_generalizes(capture: Code, subject: Any, device: torch.device, observe: Observe, stage: Any) -> None:
    """A subject recorded by torch.fx answers all its variations like eager code.

    pytorch/pytorch#51803; what torch.fx cannot record it refuses, with the line: branches on sizes or values, and loops over them.
    GPT and OPT: refused on 2.0.1, 2.8.0 and 2.15.0.
    """
    with stage("build"):
        model = subject.build().to(device).eval()
    with torch.no_grad():
        with stage("capture"):
            program = capture(model, subject.inputs(device=device))
        with stage("compare"):
            check_model(subject, subject.build().to(device).eval(), program, device, observe)  # tracing left its proxies in the other


def export_what_varies(exporter: str, subject: Any, model: nn.Module) -> Code:
    """The subject's own axes, by name."""
    return onnx_program(exporter, model, subject.inputs(), subject.dynamic(), subject.bounds or {})


def exports_then_crops(exporter: str, subject: Any, model: nn.Module) -> Code:
    """A model that is fed what fits its example."""
    program, example = export_what_varies(exporter, subject, model), subject.inputs()
    return lambda *inputs: program(*_cropped(inputs, example))


@host
@limits(timeout_s=300)
@subjects()
@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@catches(exports_then_crops, export=export_what_varies)
def test_subject_onnx_generalizes(export: Code, exporter: str, subject: Any, observe: Observe, stage: Any) -> None:
    """A subject exported to ONNX with its axes named answers all its variations like eager code, by onnxruntime or onnx's own evaluator.

    pytorch/pytorch#148886. Unsupported where onnx (and, for `dynamo`, onnxscript) is not installed.
    """
    with stage("build"):
        model = subject.build().eval()

    def eager(*inputs: Tensor) -> list[Tensor]:
        return list(tensors_of(model(*inputs)))

    with torch.no_grad():
        with stage("convert"):
            program = export(exporter, subject, model)
        with stage("compare"):
            check_model(subject, eager, program, torch.device("cpu"), observe, tolerance=ONNX_TOLERANCE)
