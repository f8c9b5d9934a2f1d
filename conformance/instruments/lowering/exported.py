"""An exported program in the torch dialect, by the FX importer of torch-mlir's wheel, with every line of the user's code kept."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from conformance.instruments.capture import Bounds, axes_as_dims, has_export
from conformance.instruments.hooks import global_hooks_kept
from conformance.instruments.lowering.blame import innermost
from conformance.instruments.lowering.dialect import NotInDialectError, context
from conformance.instruments.lowering.program import Program

#: Left whole: the decomposition of linear flattens batch and length into one axis, which torch-mlir lowers to wrong code where both are
#: open (llvm/torch-mlir#4743).
_KEPT = ("aten.linear.default",)
#: torch's own files without its layers and functions, in which a user's call may end.
_INSIDE = re.compile(re.escape(str(Path(torch.__file__).parent)) + r"/(?!nn/(modules/(?!module\.py)|functional))")
_FRAME = re.compile(r'File "([^"]+)", line ([0-9]+)')


class Stateless(nn.Module):
    """The model as a function of its weights, so that they are arguments of the exported program and not constants in its text."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.__dict__["_model"] = model  # no submodule: its parameters must not be parameters of this one

    def forward(self, weights: dict[str, torch.Tensor], *inputs: torch.Tensor) -> Any:
        """`weights` by name, then the model's own inputs."""
        from torch.func import functional_call

        return functional_call(self._model, weights, inputs)


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each tensor once, without their gradients' graph."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


@functools.cache
def importer_lack() -> str:
    """Why the FX importer cannot be had on this release; empty where it can."""
    if not has_export():
        return "this torch has no torch.export"
    if not hasattr(torch, "func"):
        return "this torch has no torch.func"
    try:
        with _without_ml_dtypes():
            from torch_mlir.extras import fx_importer  # noqa: F401
        _decompositions()
    except (ImportError, AttributeError) as error:
        return f"torch-mlir's FX importer does not load on torch {torch.__version__}: {type(error).__name__}: {error}"
    return ""


@contextlib.contextmanager
def _without_ml_dtypes() -> Iterator[None]:
    """Where ml_dtypes is installed the importer wants float8_e8m0fnu, which torch has since 2.7."""
    if hasattr(torch, "float8_e8m0fnu"):
        yield
        return
    held = sys.modules.get("ml_dtypes")
    sys.modules["ml_dtypes"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop("ml_dtypes", None)
        if held is not None:
            sys.modules["ml_dtypes"] = held


def _decompositions() -> dict[Any, Any]:
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    return {op: rule for op, rule in get_decomposition_table().items() if str(op) not in _KEPT}


def export_model(
    model: nn.Module, arguments: Sequence[torch.Tensor], varying: Sequence[Mapping[int, str]], bounds: Bounds | None = None
) -> Any:
    """The `torch.export.ExportedProgram` of a model that takes its weights as arguments, in non-strict mode, with all frames kept."""
    weights = weights_of(model)
    shapes = axes_as_dims(varying, bounds or {})
    with global_hooks_kept(), all_frames_kept():
        options = {"dynamic_shapes": (dict.fromkeys(weights), shapes)} if any(varying) else {}
        return torch.export.export(Stateless(model), (weights, *arguments), strict=False, **options)


@contextlib.contextmanager
def all_frames_kept() -> Iterator[None]:
    """Since 2.9 export keeps of a stack the frames called `forward` alone, and a line in a helper cannot be named."""
    from torch.fx.proxy import TracerBase

    own = getattr(TracerBase, "_filter_traceback_frames", None)
    if own is None:
        yield
        return

    def from_first_forward(tracer: Any, summary: Any) -> Any:
        at = next((number for number, frame in enumerate(summary) if frame.name == "forward"), len(summary))
        return type(summary).from_list(
            [frame for frame in summary[at:] if frame.filename != __file__ and not _INSIDE.match(frame.filename)]
        )

    TracerBase._filter_traceback_frames = from_first_forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = own  # type: ignore[method-assign]


def import_export(program: Any, model: nn.Module) -> Program:
    """An exported program (of `export_model`) in the torch dialect. Raises NotInDialectError, blamed on the line of the node."""
    from torch_mlir.extras.fx_importer import FxImporter

    decomposed = program.run_decompositions(_decompositions())
    importer = FxImporter(context=context())
    try:
        importer.import_program(decomposed, func_name="main")
    except Exception as error:  # the importer raises what it comes to: NotImplementedError, AssertionError, KeyError, ValueError
        node = _under_work(error, decomposed.graph)
        named = node.target if node is not None else "the program's signature"
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise NotInDialectError(f"the FX importer refuses {named}: {told}", _line(node)) from error
    return Program(importer.module.operation.get_asm(enable_debug_info=True), tuple(weights_of(model).values()), "export")


def _under_work(error: BaseException, graph: Any) -> Any:
    """The call at which the importer was, which its exceptions do not name; else, of a refused signature, the call with effects.

    An op with effects makes a token of the program's first input.
    """
    node, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "import_nodes":
            node = trace.tb_frame.f_locals.get("node")
        trace = trace.tb_next
    if node is not None and node.op == "call_function":
        return node
    return next((each for each in graph.nodes if str(each.target) == "with_effects"), None)


def _line(node: Any) -> dict[str, Any] | None:
    stack = (node.meta.get("stack_trace") or "") if node is not None else ""
    return innermost([(file, int(line), "") for file, line in reversed(_FRAME.findall(stack))])
