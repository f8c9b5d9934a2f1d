"""Checks of what must not show in any model's answer: whether gradients are recorded, and how its input lies in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, subjects, values
from conformance.instruments.freshcopies import fresh_copies
from conformance.instruments.generalization import difference_of
from conformance.instruments.gradasks import asked
from conformance.instruments.layouts import LAYOUTS, in_storage_order
from conformance.instruments.models import blame_first, run_as_it_is
from conformance.instruments.snapshots import tensors_of

Code = Callable[..., Any]
Observe = Callable[..., None]

#: Name -> the context that forward runs in, the one that training has first.
MODES: Mapping[str, Callable[[], Any]] = {
    "enable_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


class FasterWithoutGradients(nn.Module):
    """A path for inference, which computes something else."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        answer = next(tensors_of(self.model(*inputs)))
        return answer if torch.is_grad_enabled() else answer.flip(-1)


@values
@subjects()
@catches(FasterWithoutGradients, wrap=run_as_it_is)
def test_subject_answers_alike_in_grad_modes(wrap: Code, subject: Any, device: torch.device) -> None:
    """A subject in eval mode answers each variation alike under enable_grad, no_grad and inference_mode.

    A fast path that asks torch.is_grad_enabled() must compute the same; blamed is the first line that asks. Own observation, 2.13 and 2.15.
    """
    make = fresh_copies(lambda: wrap(subject.build()), device)
    for name in subject.variations:
        answers = {}
        with asked() as lines:
            for mode, entered in MODES.items():
                model, inputs = make(), subject.inputs(name, device)
                with entered():
                    answers[mode] = model(*inputs)
        for mode, answer in answers.items():
            difference = difference_of(answers["enable_grad"], answer)
            if difference:
                error = AssertionError(f"variation {name!r} is answered otherwise under {mode} than under enable_grad: {difference}")
                blame_first(error, lines)
                raise error


class TakesStorageInOrder(nn.Module):
    """The strides of its input are not looked at."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        return self.model(*(in_storage_order(each) for each in inputs))


@values
@subjects()
@catches(TakesStorageInOrder, wrap=run_as_it_is)
def test_subject_answers_alike_in_layouts(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject answers its example alike when the same numbers lie in memory otherwise: transposed, rotated, or every second element.

    as_strided, data_ptr() and kernels of one's own look past the shape. What refuses a layout, as `.view()` does, is told, and is no
    fault. Own observation, 2.13 and 2.15.
    """
    make, refused = fresh_copies(lambda: wrap(subject.build()), device), []
    with torch.no_grad():
        expected = make()(*(each.contiguous() for each in subject.inputs(device=device)))
        for name, lay_out in LAYOUTS.items():
            inputs = tuple(lay_out(each) if each.dim() else each for each in subject.inputs(device=device))
            try:
                got = make()(*inputs)
            except RuntimeError as error:
                refused.append(f"{name}: {str(error).splitlines()[0][:100]}")
                continue
            difference = difference_of(expected, got)
            assert not difference, f"inputs that are {name}, not contiguous, are answered otherwise: {difference}"
    observe("refused", "; ".join(refused) or "none")
    if len(refused) == len(LAYOUTS):
        pytest.skip(f"no layout but the contiguous one is taken: {refused[0]}")
