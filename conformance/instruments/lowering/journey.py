"""The journey of a model from eager code to a program that runs, stage by stage; where it ends, what stopped it and the line to blame."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conformance.incell.deaths import ChildDeathError
from conformance.instruments import children
from conformance.instruments.capture import Bounds, Traced, trace
from conformance.instruments.lowering import census, execution, exported, shapeguards
from conformance.instruments.lowering.beginnings import deadly
from conformance.instruments.lowering.blame import innermost, is_users
from conformance.instruments.lowering.comparison import compare_answers
from conformance.instruments.lowering.narrowing import SINGLE_OPS, narrowings
from conformance.instruments.lowering.passes import LIMIT, TO_BACKEND, TO_LINALG, CompilerDeathError, Complaint, LoweringError, Passes
from conformance.instruments.lowering.program import Program
from conformance.instruments.lowering.torchscript import import_trace

#: Looking for the op to blame must not take longer than what failed.
_CENSUS_LIMIT = children.Limit(seconds=3.0, megabytes=2_000)

Inputs = Mapping[str, Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Luggage:
    """What goes down: a model, the inputs by name (the first is what is captured with), and the axes whose sizes are left open."""

    model: nn.Module
    inputs: Inputs
    varying: Sequence[Mapping[int, str]]
    bounds: Bounds | None = None

    @property
    def example(self) -> tuple[torch.Tensor, ...]:
        """What the model is captured with."""
        return tuple(next(iter(self.inputs.values())))


@dataclass(frozen=True)
class Journey:
    """Takes models down. `stage`, `observe` and `artifact` are the case's fixtures, `folder` one of its own."""

    stage: Callable[..., Any]
    observe: Callable[..., None]
    artifact: Callable[[str, str], str]
    folder: Path
    passes_limit: children.Limit = LIMIT
    run_limit: children.Limit = execution.LIMIT

    def within(self, passes: children.Limit, run: children.Limit = execution.LIMIT) -> Journey:
        """The journey with other limits: of one pipeline, and of the run with what compiles for it."""
        return replace(self, passes_limit=passes, run_limit=run)

    def take(self, luggage: Luggage, route: str, backend: str) -> None:
        """Capture, convert, lower, compile, run and compare with eager code; what stops it is raised, at its stage.

        Skips where the release has not what the route needs. A finding that the lowering is unsound is a LoweringError at `lower`.
        """
        if route == "export" and exported.importer_lack():
            pytest.skip(exported.importer_lack())
        with self.stage("capture", route):
            captured = self._capture(luggage, route)
        try:
            compiled, program = self._compiled(luggage, captured, route, backend)
        except (LoweringError, ChildDeathError) as error:
            raise self._explained(error, luggage, captured, route) from None
        answers, refusal = self._run(backend, compiled, program, luggage)
        with self.stage("compare"):
            lines = captured.lines if isinstance(captured, Traced) else shapeguards.of_program(captured)
            compare_answers(luggage.model, luggage.inputs, answers, self.observe, lines)
        if refusal is not None:
            with self.stage("run"):
                raise refusal

    def _capture(self, luggage: Luggage, route: str) -> Any:
        try:
            if route == "script":
                return self._traced(luggage)
            return exported.export_model(luggage.model, luggage.example, luggage.varying, luggage.bounds)
        except Exception as error:  # whatever a tracer raises, the line is the user's
            _blame_users(error)
            raise

    def _traced(self, luggage: Luggage) -> Traced:
        with torch.no_grad():
            strict = not isinstance(luggage.model(*luggage.example), dict)
            traced = trace(luggage.model, luggage.example, strict=strict, check_trace=False)
        self.observe("tracer_warnings", len(traced.warned), better="lower")
        self.observe("warned_lines", "; ".join(traced.warned) or "none")
        return traced

    def _compiled(self, luggage: Luggage, captured: Any, route: str, backend: str) -> tuple[execution.Compiled, Program]:
        """What the backend takes."""
        passes = Passes(self.folder, self.passes_limit)
        with self.stage("convert", route):
            program = _imported(luggage, captured, route)
            converted = passes.run(program.asm, TO_BACKEND[route], "the conversion to the torch dialect's backend form")
        if backend == "iree":
            with self.stage("compile", backend):
                return execution.compile_for_iree(Program(converted, program.weights, route), self.folder, self.run_limit), program
        with self.stage("lower"):
            unsound = _narrowings(passes, converted) if any(luggage.varying) else []
            if unsound:
                command = ["torch-mlir-opt", "program.mlir", f"-pass-pipeline=builtin.module({SINGLE_OPS})"]
                raise LoweringError("the lowering to linalg is unsound", unsound, converted, command)
            lowered = passes.run(converted, TO_LINALG, "the lowering to linalg")
        with self.stage("compile", backend):
            return execution.compile_for_reference(lowered, self.folder), program

    def _run(
        self, backend: str, compiled: execution.Compiled, program: Program, luggage: Luggage
    ) -> tuple[execution.Answers, execution.ExecutionError | None]:
        """The answers, and the refusal of those inputs that got none. A death is raised at its stage."""
        try:
            with self.stage("run", backend):
                return execution.run(backend, compiled, program.weights, luggage.inputs, self.folder, self.run_limit), None
        except execution.ExecutionError as error:
            if error.answers:
                return error.answers, error
            self._at(error)
        except execution.ExecutionDeathError as error:
            self._at(error)
        raise AssertionError("unreachable")

    def _at(self, error: Any) -> None:
        with self.stage(error.stage):
            raise error

    def _explained(self, error: Exception, luggage: Luggage, captured: Any, route: str) -> Exception:
        """The error with every blocking op observed, its program and command kept, and the op to blame in its words."""
        if isinstance(error, (LoweringError, CompilerDeathError)) and error.program:
            self.artifact("program.mlir", error.program)
            self.artifact("reproduce.txt", error.reproduction)
        alone, incomplete = self._blocking(luggage, captured, route)
        told = {each.message for each in alone} | {each.op for each in alone}
        first = [each for each in (error.complaints if isinstance(error, LoweringError) else ()) if not {each.message, each.op} & told]
        found = [*first, *alone]
        words = [*map(_told, found), *([f"others are not known: {incomplete}"] if incomplete else [])]
        self.observe("blocking", "; ".join(words) or "none by itself")
        if not incomplete:
            self.observe("blocking_ops", len(found), better="lower")
        if isinstance(error, ChildDeathError):
            blamed = found[0] if found else None
            text = f"{error}, under work {_told(blamed)}" if blamed is not None else str(error)
            return ChildDeathError(error.verdict, text, error.signal, blamed.blame if blamed is not None else None)
        return error

    def _blocking(self, luggage: Luggage, captured: Any, route: str) -> tuple[list[Complaint], str]:
        """Every op that blocks by itself; where the program cannot be taken apart none, and why."""
        passes = Passes(self.folder, _CENSUS_LIMIT)
        try:
            if route == "export":
                program = _imported(luggage, captured, route)
                return census.blocking(passes, program.asm, f"{TO_BACKEND[route]},{TO_LINALG}"), ""
            program = import_trace(captured, luggage.example, luggage.varying, cut=True)
            try:
                converted = passes.run(program.asm, TO_BACKEND[route], "the conversion of the rest")
            except ChildDeathError as death:
                found = deadly(passes, program.asm, TO_BACKEND[route])
                return [*dict.fromkeys(program.unknown), *([found] if found is not None else [])], str(death)
            refused = census.blocking(passes, converted, TO_LINALG)
            # where an op does not lower, what is unsound beside it cannot be looked for
            unsound = narrowings(passes, converted) if any(luggage.varying) and not refused else []
            return [*dict.fromkeys(program.unknown), *refused, *unsound], ""
        except (LoweringError, ChildDeathError, exported.NotInDialectError) as error:
            return [], str(error)


def _narrowings(passes: Passes, converted: str) -> list[Complaint]:
    """What is unsound in the lowering; where that cannot be looked for, the whole lowering says better what it cannot do."""
    try:
        return narrowings(passes, converted)
    except LoweringError:
        passes.run(converted, TO_LINALG, "the lowering to linalg")
        raise


def _imported(luggage: Luggage, captured: Any, route: str) -> Program:
    if route == "script":
        return import_trace(captured, luggage.example, luggage.varying)
    return exported.import_export(captured, luggage.model)


def _told(complaint: Complaint) -> str:
    """An op with its types and its line, for a reader."""
    blame = complaint.blame
    where = f" at {Path(blame['file']).name}:{blame['line']}: {blame['source']}" if blame is not None else ""
    return f"{complaint.op or 'an op without a name'} {complaint.types}".rstrip() + f" ({complaint.message}){where}"


def _blame_users(error: Exception) -> None:
    """Blame the innermost frame outside torch and this package; export tells of some in its message alone, which judging reads."""
    package = str(Path(children.__file__).parent)
    frames = [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(traceback.extract_tb(error.__traceback__))]
    own = [frame for frame in frames if is_users(frame[0]) and not frame[0].startswith((package, "<"))]
    found = [innermost(own)] if own else shapeguards.of_error(error)
    if found:
        error.blame = found[0]  # type: ignore[attr-defined]
