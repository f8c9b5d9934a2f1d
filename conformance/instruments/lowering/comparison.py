"""Does a lowered program answer like eager code, on inputs that it was not captured with, in float32 and against float64?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from conformance.instruments.models import blame_first
from conformance.instruments.snapshots import tensors_of

#: Lowered code sums in another order: the worst seen is 1.5e-5 (a GPT of two layers), with 12 layers of OPT 6.7e-6.
TOLERANCE = 1e-4

Inputs = Mapping[str, Sequence[torch.Tensor]]


def compare_answers(
    model: nn.Module,
    inputs: Inputs,
    answers: Mapping[str, Sequence[torch.Tensor]],
    observe: Callable[..., None],
    lines: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Raise AssertionError for the first variation whose answer is not eager's, blamed on the first of `lines` (where the tracer warned).

    A number may be off by TOLERANCE of float32's answer, and by as much more of float64's as eager float32 itself is. Observed are the
    largest difference to eager float32, by variation too, and the errors of both against float64. Variations without an answer are left
    out.
    """
    precise = _in_float64(model, inputs)
    apart, error, own_error, outcomes = 0.0, 0.0, 0.0, {}
    for name, given in inputs.items():
        if name not in answers:
            continue
        expected, written = _answer(model, given)
        wide, _ = _answer(precise or model, [_widened(each) if precise else each for each in given])
        exact = [_where_known(each, own) for each, own in zip(wide, expected)]
        outcomes[name] = _mismatch(expected, exact, answers[name])
        if written and not outcomes[name][1]:
            outcomes[name] = (0.0, f"eager code writes into argument {written[0]}, and a lowered program cannot")
        if not outcomes[name][1]:
            apart = max(apart, outcomes[name][0])
            error, own_error = max(error, _largest(exact, answers[name])), max(own_error, _largest(exact, expected))
    observe("variations", ", ".join(f"{name}={'wrong' if told else f'{value:.1e}'}" for name, (value, told) in outcomes.items()))
    observe("max_difference", apart, better="lower")
    if precise is not None:
        observe("error_to_float64", error, better="lower")
        observe("eager_error_to_float64", own_error, better="lower")
    wrong = [(name, told) for name, (_, told) in outcomes.items() if told]
    if wrong:
        failure = AssertionError(f"variation {wrong[0][0]!r}: {wrong[0][1]}")
        blame_first(failure, lines)
        raise failure


def _answer(model: nn.Module, given: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[int]]:
    """Eager code's tensors, in order, and the positions of the arguments that it wrote into; it gets copies."""
    copies = [each.clone() for each in given]
    with torch.no_grad():
        answer = list(tensors_of(model(*copies)))
    return answer, [at for at, (own, now) in enumerate(zip(given, copies)) if not torch.equal(own, now)]


def _in_float64(model: nn.Module, inputs: Inputs) -> nn.Module | None:
    """The model in float64; None where it makes constants of its own that do not go with it."""
    precise = copy.deepcopy(model).double()
    try:
        _answer(precise, [_widened(each) for each in next(iter(inputs.values()))])
    except RuntimeError:
        return None
    return precise


def _where_known(exact: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """float64's numbers, and float32's where those are finite alone.

    Hugging Face's attention casts its masked scores to float32 before the softmax: float64's least number is -inf there, and a row that is
    masked as a whole is not a number.
    """
    if exact.shape != own.shape or not (exact.is_floating_point() or exact.is_complex()):
        return exact
    return torch.where(own.isfinite() & ~exact.isfinite(), own.to(exact.dtype), exact)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _mismatch(expected: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> tuple[float, str]:
    """The largest difference to eager float32, and in words what does not agree; empty words where all does."""
    if len(expected) != len(got):
        return 0.0, f"{len(expected)} tensors, got {len(got)}"
    worst = 0.0
    for number, (own, precise, other) in enumerate(zip(expected, exact, got)):
        if own.shape != other.shape or own.dtype != other.dtype:
            return worst, f"output {number}: {tuple(own.shape)} {own.dtype}, got {tuple(other.shape)} {other.dtype}"
        apart, told = _apart(own, precise, other)
        worst = max(worst, apart)
        if told:
            return worst, f"output {number}: {told}"
    return worst, ""


def _apart(own: torch.Tensor, precise: torch.Tensor, other: torch.Tensor) -> tuple[float, str]:
    if not (own.is_floating_point() or own.is_complex()):
        differing = int((own != other).sum())
        return float(differing > 0), f"{differing} of {own.numel()} elements differ" if differing else ""
    if not own.numel():
        return 0.0, ""
    apart, slack = _largest([own], [other]), _largest([precise], [own])
    scale = TOLERANCE * max(1.0, float(own[own.isfinite()].abs().max()) if bool(own.isfinite().any()) else 1.0)
    if apart > scale or _largest([precise], [other]) > scale + slack:
        return apart, f"differs by {apart:.2g} from eager float32, by {_largest([precise], [other]):.2g} from float64"
    return apart, ""


def _largest(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> float:
    """The largest absolute difference; infinite where one has a number that is finite and the other has not."""
    worst = 0.0
    for own, other in zip(expected, got):
        if not (own.is_floating_point() or own.is_complex()) or not own.numel():
            continue
        wide, others = own.to(_wide(own)), other.to(_wide(own))
        same = (wide == others) | (wide.isnan() & others.isnan())
        apart = torch.where(same, torch.zeros_like(wide.abs()), (wide - others).abs())
        worst = max(worst, float(torch.nan_to_num(apart, nan=float("inf")).max()))
    return worst


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64
