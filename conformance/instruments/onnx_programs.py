"""ONNX models of modules, and what runs them: onnxruntime where it is installed, else the reference evaluator of the package onnx."""

from __future__ import annotations

import importlib.util
import inspect
import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.instruments.capture import Bounds, Dynamic, dynamic_shapes

#: The packages that each exporter wants beside torch.
PACKAGES = {"torchscript": ("onnx",), "dynamo": ("onnx", "onnxscript")}


def lacking(exporter: str) -> str:
    """Why this exporter cannot run here, empty where it can: a package or the exporter itself is missing."""
    missing = [name for name in PACKAGES[exporter] if importlib.util.find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed: `--with {' --with '.join(missing)}` adds what an ONNX export needs"
    if exporter == "dynamo" and "dynamic_shapes" not in inspect.signature(torch.onnx.export).parameters:
        return "this torch.onnx.export takes no dynamic_shapes"
    return ""


def onnx_program(
    exporter: str, module: nn.Module, arguments: Sequence[Tensor], dynamic: Dynamic, bounds: Bounds
) -> Callable[..., list[Tensor]]:
    """What runs the ONNX model of `module`, made by `exporter` ("torchscript", "dynamo") with the axes of `dynamic` named.

    It takes as many tensors as `arguments` by position and gives the list of output tensors. Skips where the exporter is missing.
    """
    reason = lacking(exporter)
    if reason:
        pytest.skip(reason)
    names = [f"input_{index}" for index in range(len(arguments))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make = _by_dynamo if exporter == "dynamo" else _by_torchscript
        written = make(module, tuple(arguments), names, dynamic, bounds)
    return _runner(written, names)


def _by_torchscript(module: nn.Module, arguments: tuple[Tensor, ...], names: list[str], dynamic: Dynamic, bounds: Bounds) -> bytes:
    file = io.BytesIO()
    options = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    axes = {name: dict(named) for name, named in zip(names, dynamic) if named}
    torch.onnx.export(module, arguments, file, input_names=names, dynamic_axes=axes, **options)  # type: ignore[arg-type]
    return file.getvalue()


def _by_dynamo(module: nn.Module, arguments: tuple[Tensor, ...], names: list[str], dynamic: Dynamic, bounds: Bounds) -> bytes:
    shapes = dynamic_shapes(module, dynamic, bounds)
    program: Any = torch.onnx.export(module, arguments, input_names=names, dynamo=True, dynamic_shapes=shapes, verbose=False)
    written: bytes = program.model_proto.SerializeToString()
    return written


def _runner(written: bytes, names: list[str]) -> Callable[..., list[Tensor]]:
    run, taken = _session(written)

    def program(*arguments: Tensor) -> list[Tensor]:
        given = {name: tensor.detach().cpu().numpy() for name, tensor in zip(names, arguments) if name in taken}
        return [torch.as_tensor(output) for output in run(None, given)]

    return program


def _session(written: bytes) -> tuple[Callable[..., Any], set[str]]:
    """What runs the model, and the names of the inputs that are left in it: one that changes nothing is dropped."""
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
        return session.run, {given.name for given in session.get_inputs()}
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load_model_from_string(written)
    return ReferenceEvaluator(model).run, {given.name for given in model.graph.input}
