"""Capture and judgement in one step: the shape of most cases of family `trace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.instruments.capture import Traced, trace
from conformance.instruments.generalization import Observe, check_generalizes

Stage = Callable[[str], Any]


def check_trace(code: Callable[..., Any], inputs: Mapping[str, Sequence[Any]], observe: Observe, stage: Stage, **options: Any) -> Traced:
    """Trace `code` with the first of `inputs` and hold it against eager code on all of them; returns the traced program.

    Observes `tracer_warnings` (distinct lines, fewer is better) and the outcomes of `check_generalizes`.
    """
    with stage("capture"):
        traced = trace(code, next(iter(inputs.values())), **options)
    observe("tracer_warnings", len(traced.warned), better="lower")
    with stage("compare"):
        check_generalizes(code, traced, inputs, observe)
    return traced


def check_refused_or_general(
    capture: Callable[[], Callable[..., Any]],
    eager: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any]],
    observe: Observe,
) -> None:
    """Either `capture()` raises, which is the loud way, or what it returns holds for all of `inputs`.

    Observes `capture`: `accepted`, or the class of the error.
    """
    try:
        program = capture()
    except Exception as error:
        observe("capture", f"refused: {type(error).__name__}")
        return
    observe("capture", "accepted")
    check_generalizes(eager, program, inputs, observe)
