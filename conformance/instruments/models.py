"""What cases on whole models share: models to wrap and to hold against, and the judgement with its smallest input and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache, rotate
from conformance.instruments.compilation import Report
from conformance.instruments.generalization import TOLERANCE, Observe, Outcome, compare, judge_outcomes
from conformance.instruments.shrinking import smallest


class AsItIs(nn.Module):
    """The model, untouched: what wrong twins of whole models derive from."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        return self.model(*inputs)


def run_as_it_is(model: nn.Module) -> nn.Module:
    """The model alone: the right idiom of cases on whole models, whose parts keep their names."""
    return model


class HoldsEnough(nn.Module):
    """Heads turned by the guard RotaryCache, whose table holds all the lengths that cases ask for."""

    def __init__(self, device: torch.device | str) -> None:
        super().__init__()
        self.rotary = RotaryCache(4, rows=64, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Heads `(B, T, H, 4)`."""
        return rotate(x, *self.rotary(x.size(1)))


_TORCH = str(Path(torch.__file__).parent)


def check_model(
    subject: Any,
    eager: Callable[..., Any],
    captured: Callable[..., Any],
    device: torch.device,
    observe: Observe,
    lines: Sequence[Mapping[str, Any]] = (),
    tolerance: float = TOLERANCE,
) -> None:
    """Hold `captured` against `eager` on all variations of `subject`, up to `tolerance`.

    Where one fails, `smallest_failing` is observed (its sizes by axis), and the error is blamed on the first of `lines` outside torch.
    Raises as `check_generalizes` does.
    """
    outcomes = [compare(name, eager, captured, arguments, tolerance) for name, arguments in subject.all_inputs(device).items()]
    failing = [outcome for outcome in outcomes if outcome.text != "ok"]
    if failing and subject.resize is not None:
        observe("smallest_failing", _told(_smallest(subject, eager, captured, device, failing, tolerance)))
    try:
        judge_outcomes(outcomes, observe)
    except Exception as error:
        blame_first(error, lines)
        raise


def check_whole(report: Report) -> None:
    """Raise AssertionError for the first break or frame that was left to Python, blamed on its line in the user's code."""
    for told, what in ((report.breaks, "the graph breaks"), (report.skipped, "a frame is left to Python")):
        if told:
            error = AssertionError(f"{what}: {told[0].reason} at {told[0].blame}")
            blame_first(error, [told[0].line])
            raise error


def blame_first(error: Exception, lines: Sequence[Mapping[str, Any]]) -> None:
    """Make the first of `lines` that is not torch's own the line to blame for `error`."""
    own = [line for line in lines if line and not str(line["file"]).startswith(_TORCH)]
    if own:
        error.blame = dict(own[0])  # type: ignore[attr-defined]


def _smallest(
    subject: Any,
    eager: Callable[..., Any],
    captured: Callable[..., Any],
    device: torch.device,
    failing: Sequence[Outcome],
    tolerance: float,
) -> dict[str, int] | None:
    """The smallest input that fails as the worst variation does: in silence where one does."""
    silent = any(outcome.error is None for outcome in failing)

    def fails(sizes: Mapping[str, int]) -> bool:
        arguments = tuple(tensor.to(device) for tensor in subject.resize(sizes))
        try:
            eager(*arguments)
        except Exception:  # sizes that the model itself refuses
            return False
        outcome = compare("", eager, captured, arguments, tolerance)
        return bool(outcome.difference) if silent else outcome.text != "ok"

    return smallest(subject.sizes(), fails)


def _told(sizes: Mapping[str, int] | None) -> str:
    return "not found" if sizes is None else ", ".join(f"{name}={size}" for name, size in sizes.items())
