"""One way to capture code on torch 1.13 to the newest: the TorchScript tracer, torch.fx, torch.export."""

from __future__ import annotations

import functools
import inspect
import linecache
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conformance.instruments.hooks import global_hooks_kept

_TORCH = str(Path(torch.__file__).parent)
#: One dict an argument, in order: axis -> name of what varies along it.
Dynamic = Sequence[Mapping[int, str]]
Bounds = Mapping[str, "tuple[int, int]"]


@dataclass(frozen=True)
class Traced:
    """A traced program, and where the tracer warned: distinct `file name:line: source`, in order of first occurrence."""

    program: Any
    warned: tuple[str, ...]
    #: The same lines as records have them: `file`, `line`, `source`.
    lines: tuple[dict[str, Any], ...] = ()

    @functools.cached_property
    def graph(self) -> Any:
        """The graph with its calls inlined; it dies with this object, and its nodes with it (a node then read ends the process)."""
        return self.program.inlined_graph

    @property
    def frozen(self) -> list[str]:
        """Where the tracer warned outside of torch: in torch's own files it warns of checks of arguments."""
        return list(dict.fromkeys(_place(line) for line in self.lines if not str(line["file"]).startswith(_TORCH)))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the program."""
        return self.program(*arguments, **named)


def trace(code: Callable[..., Any], arguments: Sequence[Any], **options: Any) -> Traced:
    """`torch.jit.trace(code, arguments, **options)` with its TracerWarnings collected; other warnings are dropped here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = torch.jit.trace(code, tuple(arguments), **options)
    lines = {(w.filename, w.lineno): _line(w) for w in caught if issubclass(w.category, torch.jit.TracerWarning)}
    return Traced(program, tuple(dict.fromkeys(map(_place, lines.values()))), tuple(lines.values()))


def _place(line: dict[str, Any]) -> str:
    return f"{Path(line['file']).name}:{line['line']}: {line['source']}"


def _line(warning: warnings.WarningMessage) -> dict[str, Any]:
    source = linecache.getline(warning.filename, warning.lineno).strip()
    return {"file": warning.filename, "line": warning.lineno, "source": source}


def nodes(traced: Traced, kind: str) -> list[Any]:
    """Nodes of `kind`, as `aten::full`, in the traced program with its calls inlined, blocks included."""
    found: list[Any] = []
    pending = list(traced.graph.nodes())
    while pending:
        node = pending.pop(0)
        if node.kind() == kind:
            found.append(node)
        for block in node.blocks():
            pending.extend(block.nodes())
    return found


def device_constants(traced: Traced) -> list[str]:
    """Devices that the traced program holds as constants, sorted."""
    outputs = [node.output() for node in nodes(traced, "prim::Constant")]
    return sorted({str(output.toIValue()) for output in outputs if str(output.type()) == "Device"})


def has_export() -> bool:
    """Whether torch.export is there (2.1)."""
    return hasattr(getattr(torch, "export", None), "export")


def modes() -> tuple[bool, ...]:
    """The values of `strict` that this release's torch.export takes; 2.1 knows strict alone, unnamed."""
    return (True, False) if "strict" in inspect.signature(torch.export.export).parameters else (True,)


@functools.cache
def nonstrict_is_dynamic() -> bool:
    """Whether non-strict export takes dynamic shapes (2.3); 2.2 has the mode without them, and only a try can tell."""
    try:
        with global_hooks_kept():
            export_bare(_Double(), (torch.ones(2, 3),), ({0: "rows"},), strict=False)
    except (AssertionError, RuntimeError, NotImplementedError):
        return False
    return True


class _Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@dataclass(frozen=True)
class Exported:
    """An exported program and what runs it."""

    program: Any
    run: Callable[..., Any]


def export(
    module: nn.Module,
    arguments: Sequence[Any],
    dynamic: Dynamic | None = None,
    *,
    strict: bool | None = None,
    bounds: Bounds | None = None,
) -> Exported:
    """`torch.export.export`, its dynamic axes named as Dim from 2.2 and as constraints on 2.1.

    `strict=None` leaves the release's default. Skips (unsupported) where the release has no export, no such mode, or no
    dynamic shapes in it. What a failed export leaves on all modules of the process is taken off.
    """
    if dynamic is not None and strict is False and has_export() and False in modes() and not nonstrict_is_dynamic():
        pytest.skip("non-strict export takes no dynamic shapes")
    with global_hooks_kept():
        return export_bare(module, arguments, dynamic, strict=strict, bounds=bounds)


def export_bare(
    module: nn.Module,
    arguments: Sequence[Any],
    dynamic: Dynamic | None = None,
    *,
    strict: bool | None = None,
    bounds: Bounds | None = None,
) -> Exported:
    """`export` without its care for what comes after, and without asking whether the mode takes dynamic shapes."""
    if not has_export():
        pytest.skip("no torch.export")
    options = _mode(strict)
    if dynamic is not None:
        options.update(_shapes(module, arguments, dynamic, bounds or {}))
    program = torch.export.export(module, tuple(arguments), **options)
    return Exported(program, runner(program))


def runner(program: Any) -> Callable[..., Any]:
    """What runs an exported program: its module from 2.2, the program itself on 2.1."""
    module: Callable[..., Any] = program.module() if hasattr(program, "module") and hasattr(torch.export, "Dim") else program
    return module


def _mode(strict: bool | None) -> dict[str, Any]:
    if strict is None or (strict and modes() == (True,)):
        return {}
    if strict not in modes():
        pytest.skip(f"torch.export takes no strict={strict}")
    return {"strict": strict}


def _shapes(module: nn.Module, arguments: Sequence[Any], dynamic: Dynamic, bounds: Bounds) -> dict[str, Any]:
    if hasattr(torch.export, "Dim"):
        return {"dynamic_shapes": dynamic_shapes(module, dynamic, bounds)}
    return {"constraints": _constraints(arguments, dynamic, bounds)}


def dynamic_shapes(module: nn.Module, dynamic: Dynamic, bounds: Bounds) -> tuple[Any, ...]:
    """`dynamic` as torch.export takes it from 2.2 for this module."""
    shapes = axes_as_dims(dynamic, bounds)
    kinds = [parameter.kind for parameter in inspect.signature(module.forward).parameters.values()]
    return (shapes,) if kinds == [inspect.Parameter.VAR_POSITIONAL] else shapes


def axes_as_dims(dynamic: Dynamic, bounds: Bounds) -> tuple[Any, ...]:
    """The axes of each argument as Dim, equal names the same one; None for an argument without any."""
    names = list(dict.fromkeys(name for axes in dynamic for name in axes.values()))
    dims = {name: _dim(name, bounds.get(name)) for name in names}
    return tuple({axis: dims[name] for axis, name in axes.items()} or None for axes in dynamic)


def _dim(name: str, bound: tuple[int, int] | None) -> Any:
    return torch.export.Dim(name) if bound is None else torch.export.Dim(name, min=bound[0], max=bound[1])


def _constraints(arguments: Sequence[Any], dynamic: Dynamic, bounds: Bounds) -> list[Any]:
    from torch.export import dynamic_dim  # type: ignore[attr-defined]  # 2.1 alone

    first: dict[str, Any] = {}
    found: list[Any] = []
    for argument, axes in zip(arguments, dynamic):
        for axis, name in axes.items():
            here = dynamic_dim(argument, axis)
            if name in first:
                found.append(here == first[name])
                continue
            first[name] = here
            low, high = bounds.get(name, (None, None))
            # 0 and 1 are always specialised; a lower bound below 2 is refused.
            found.append(here if low is None or low < 2 else here >= low)
            if high is not None:
                found.append(here <= high)
    return found
