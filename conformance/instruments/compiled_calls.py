"""Calls of code under torch.compile, each compared with the same call of eager code: is the answer the same, and all that it leaves?"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.instruments.compilation import Observe, Report, compiling, observe_report
from conformance.instruments.generalization import Outcome, difference_of
from conformance.instruments.snapshots import snapshot, state_of, tensors_of


@dataclass(frozen=True)
class Call:
    """Arguments of one call, and what is done to the code `before` it: an attribute set from outside, a mode switched."""

    arguments: Sequence[Any] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[Any], object] | None = None


def call(*arguments: Any, before: Callable[[Any], object] | None = None, **named: Any) -> Call:
    """A Call, written as the call is."""
    return Call(arguments, named, before)


@dataclass
class _Done:
    """What one call left: a snapshot of everything that can be seen, or the exception."""

    seen: dict[str, Any]
    error: Exception | None = None


def _perform(target: Callable[..., Any], code: Callable[..., Any], planned: Call, *, backward: bool) -> _Done:
    if planned.before is not None:
        planned.before(code)
    arguments, named = copy.deepcopy((planned.arguments, dict(planned.named)))
    try:
        result = target(*arguments, **named)
        if backward:
            _back(result)
    except Exception as error:
        return _Done({"arguments": snapshot((arguments, named)), "state": state_of(code)}, error)
    gradients = [snapshot(tensor.grad if tensor.is_leaf else None) for tensor in tensors_of((arguments, named))]
    return _Done({"result": snapshot(result), "arguments": snapshot((arguments, named)), "grads": gradients, "state": state_of(code)})


def _back(result: Any) -> None:
    losses = [tensor.pow(2).sum() for tensor in tensors_of(result) if tensor.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()


def _judged(name: str, expected: _Done, got: _Done) -> Outcome:
    """A difference from eager is wrong; an exception that eager has not is the compiler's own.

    Where eager raises, so must compiled code, by the same class or one derived from it: what catches the one must catch the other.
    """
    if expected.error is None:
        return Outcome(name, error=got.error) if got.error is not None else Outcome(name, difference=_difference(expected, got))
    if got.error is None:
        return Outcome(name, difference=f"eager code raises {type(expected.error).__name__}, compiled code answers")
    if not isinstance(got.error, type(expected.error)):
        return Outcome(name, difference=f"eager code raises {type(expected.error).__name__}, compiled code {type(got.error).__name__}")
    return Outcome(name, difference=_difference(expected, got))


def _difference(expected: _Done, got: _Done) -> str:
    return _in_words(difference_of(expected.seen, got.seen, ""))


def _in_words(told: str) -> str:
    """`['state']['.table']['items'][3]['value']: 2, got 1` as `its state .table 3: 2, got 1`: how values are described is left out."""
    path = re.match(r"(\[[^\]]*\])+", told)
    if path is None:
        return told.removeprefix(": ")
    keys = [key.strip("'") for key in re.findall(r"\[([^\]]*)\]", path[0]) if key not in ("'tensor'", "'items'", "'value'")]
    return f"its {' '.join(keys)}{told[path.end() :]}"


Compile = Callable[..., Any]


def check_compiled(
    code: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any] | Call],
    observe: Observe | None = None,
    *,
    compiled_by: Compile = compiling,
    backend: str = "eager",
    backward: bool = False,
    fresh: Callable[[], object] | None = None,
    **options: Any,
) -> Report:
    """Make all calls of `inputs` (name -> arguments) in eager code, then in compiled code, each on a copy of `code`, and compare.

    Compared are values, dtypes, container types, requires_grad, exceptions, what was written into arguments, the code's own
    state and, with `backward`, gradients. `fresh` puts globals back before each of the two runs. Raises AssertionError at
    the first call that differs; with none, the compiler's own exception. Observes what the report holds.
    """
    calls = {name: given if isinstance(given, Call) else Call(given) for name, given in inputs.items()}
    ours, theirs = copy.deepcopy(code), copy.deepcopy(code)
    if fresh is not None:
        fresh()
    expected = [_perform(ours, ours, planned, backward=backward) for planned in calls.values()]
    if fresh is not None:
        fresh()
    got = []
    with compiled_by(theirs, backend=backend, **options) as (compiled, report):
        for planned in calls.values():
            got.append(_perform(compiled, theirs, planned, backward=backward))
            report.after.append(report.graphs)
    outcomes = [_judged(name, *pair) for name, pair in zip(calls, zip(expected, got))]
    if observe is not None:
        observe_report(report, observe)
        observe("calls", ", ".join(f"{outcome.variation}={outcome.text}" for outcome in outcomes))
    _raise_first(outcomes)
    return report


def _raise_first(outcomes: Sequence[Outcome]) -> None:
    wrong = [outcome for outcome in outcomes if outcome.difference]
    assert not wrong, f"call {wrong[0].variation!r}: {wrong[0].difference}"
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
