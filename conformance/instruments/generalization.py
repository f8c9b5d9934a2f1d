"""Does a captured program answer like eager code on inputs that it was not captured with?

A wrong answer is worse than a refusal, so all inputs are tried before the judgement: any difference is an AssertionError
(verdict `wrong`), and only a program that never differs may surface the exception that torch raised (verdict `raises`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

#: A difference beyond this, relative and absolute, is no rounding; captured programs run the same kernels, often fused or
#: reordered. Low precision is given what torch.testing gives it.
TOLERANCE = 1e-5
LOW_PRECISION = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2}

Observe = Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one variation came to: `difference` says how the answer differs, `error` is what the program raised."""

    variation: str
    difference: str = ""
    error: Exception | None = None

    @property
    def text(self) -> str:
        """`ok`, `wrong`, or the class of the error."""
        if self.error is not None:
            return f"raises {type(self.error).__name__}"
        return "wrong" if self.difference else "ok"


def check_generalizes(
    eager: Callable[..., Any], captured: Callable[..., Any], inputs: Mapping[str, Sequence[Any]], observe: Observe | None = None
) -> None:
    """Run both on each of `inputs` (name -> arguments) and judge.

    Raises AssertionError naming the first variation whose answer differs (or that eager refuses and the program answers);
    with none, the program's own exception of the first variation that it refused. `observe`, if given, gets the outcome of
    each variation as `variations`, and the first that failed as `first_failing`.
    """
    judge_outcomes([compare(name, eager, captured, arguments) for name, arguments in inputs.items()], observe)


def judge_outcomes(outcomes: Sequence[Outcome], observe: Observe | None = None) -> None:
    """Raise what the worst of `outcomes` is, as `check_generalizes` says; observe all of them."""
    failing = [outcome for outcome in outcomes if outcome.text != "ok"]
    if observe is not None:
        observe("variations", ", ".join(f"{outcome.variation}={outcome.text}" for outcome in outcomes))
        observe("first_failing", failing[0].variation if failing else "none")
    wrong = [outcome for outcome in failing if outcome.error is None]
    assert not wrong, f"variation {wrong[0].variation!r}: {wrong[0].difference}"
    for outcome in failing:
        if outcome.error is not None:
            _note(outcome.error, f"variation {outcome.variation!r}")
            raise outcome.error


def compare(
    name: str, eager: Callable[..., Any], captured: Callable[..., Any], arguments: Sequence[Any], tolerance: float = TOLERANCE
) -> Outcome:
    """The outcome of one variation; both sides get their own copies of the tensors in `arguments`."""
    expected, refusal = _attempt(eager, arguments)
    got, error = _attempt(captured, arguments)
    if refusal is not None:
        difference = "" if error is not None else f"eager raises {type(refusal).__name__}, the captured program answers"
        return Outcome(name, difference)
    if error is not None:
        return Outcome(name, error=error)
    return Outcome(name, difference=difference_of(expected, got, tolerance=tolerance))


def difference_of(expected: Any, got: Any, path: str = "output", *, tolerance: float = TOLERANCE) -> str:
    """How `got` differs from `expected`, in words; empty when they agree in structure, dtype, shape and numbers.

    `tolerance` is relative and absolute, and is widened for low precision.
    """
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(expected, got, path, tolerance)
    if dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        names = [field.name for field in dataclasses.fields(expected)]
        return _first(difference_of(getattr(expected, n), getattr(got, n, None), f"{path}.{n}", tolerance=tolerance) for n in names)
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or list(expected) != list(got):
            return f"{path}: keys {list(expected)}, got {list(got) if isinstance(got, Mapping) else type(got).__name__}"
        return _first(difference_of(expected[key], got[key], f"{path}[{key!r}]", tolerance=tolerance) for key in expected)
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, (tuple, list)) or len(expected) != len(got):
            return f"{path}: {len(expected)} items, got {len(got) if isinstance(got, (tuple, list)) else type(got).__name__}"
        return _first(difference_of(e, g, f"{path}[{i}]", tolerance=tolerance) for i, (e, g) in enumerate(zip(expected, got)))
    return "" if type(expected) is type(got) and expected == got else f"{path}: {expected!r}, got {got!r}"


def _tensor_difference(expected: torch.Tensor, got: Any, path: str, tolerance: float) -> str:
    if not isinstance(got, torch.Tensor):
        return f"{path}: a tensor, got {type(got).__name__}"
    for what in ("dtype", "shape"):
        if getattr(expected, what) != getattr(got, what):
            return f"{path}: {what} {getattr(expected, what)}, got {getattr(got, what)}"
    if expected.device.type != got.device.type:
        return f"{path}: on {expected.device.type}, got {got.device.type}"
    if expected.is_meta:
        return ""
    a, b = expected.detach().cpu(), got.detach().cpu()  # on the host: comparing is not what the case measures
    inexact = a.is_floating_point() or a.is_complex()
    allowed = max(tolerance, LOW_PRECISION.get(a.dtype, 0.0))
    close = torch.isclose(a, b, rtol=allowed, atol=allowed, equal_nan=True) if inexact else a == b
    if bool(close.all()):
        return ""
    return f"{path}: {int((~close).sum())} of {a.numel()} elements differ"


def _first(differences: Any) -> str:
    return next((difference for difference in differences if difference), "")


def _attempt(program: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, Exception | None]:
    try:
        return program(*(_copied(argument) for argument in arguments)), None
    except Exception as error:
        return None, error


def _copied(argument: Any) -> Any:
    return argument.detach().clone() if isinstance(argument, torch.Tensor) else argument


def _note(error: Exception, text: str) -> None:
    add = getattr(error, "add_note", None)
    if add is not None:
        add(text)
