"""Checks of any model on any device: its numbers beside float64, and what it makes elsewhere than where its input is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, host, subjects, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.bits import same_bits
from conformance.instruments.dtypes import built_in_float64, default_dtype
from conformance.instruments.models import blame_first, run_as_it_is
from conformance.instruments.nans import FirstNan
from conformance.instruments.snapshots import tensors_of

Code = Callable[..., Any]
Observe = Callable[..., None]

#: What meta says to code that wants a number, or asks for autocast there.
READS = (
    "autocast device_type",
    "item()",
    "_local_scalar_dense",
    "is_nonzero",
    "aten::nonzero",
    "torch.nonzero",
    "data-dependent",
    "no data",
    "aten::equal",
)

#: Beyond this, relative to the largest element, float32 lost more than rounding.
TOLERANCE = 1e-3


def _answers(output: Any) -> list[Tensor]:
    return list(tensors_of(output))


def run_on_device(model: nn.Module, inputs: tuple[Tensor, ...], device: torch.device) -> list[Tensor]:
    """The model and its inputs on the device."""
    return _answers(model.to(device)(*(x.to(device) for x in inputs)))


def rounds_on_the_way(model: nn.Module, inputs: tuple[Tensor, ...], device: torch.device) -> list[Tensor]:
    """Through bfloat16 and back: the device had a faster kernel."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return run_on_device(model, inputs, device)


def _reference(subject: Any) -> tuple[list[Tensor], str]:
    """The answers in float64 on the CPU, for constants too that follow the default dtype; in float32 where the model refuses the other."""
    inputs = tuple(x.double() if x.is_floating_point() else x for x in subject.inputs())
    with default_dtype(torch.float64):
        try:
            return _answers(built_in_float64(subject.build)(*inputs)), "float64"
        except Exception as error:  # what a model refuses a dtype with is its own affair
            refused = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return _answers(subject.build()(*subject.inputs())), f"float32, since in float64 it {refused}"


def _error(got: Tensor, expected: Tensor) -> float:
    if not expected.is_floating_point():
        return 0.0 if torch.equal(got.cpu(), expected) else float("inf")
    finite = expected.isfinite()
    if not bool(torch.equal(got.detach().cpu().isfinite(), finite)):
        return float("inf")
    scale = float(expected[finite].abs().max()) if bool(finite.any()) else 1.0
    apart = (got.detach().cpu().double() - expected)[finite].abs()
    return float(apart.max()) / max(scale, 1e-12) if apart.numel() else 0.0


@values
@subjects()
@catches(rounds_on_the_way, run=run_on_device)
def test_subject_equals_float64(run: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject on the device answers as it does in float64 on the CPU, up to the rounding of float32.

    Observed is the error relative to the largest element; the subject may bring its own tolerance. 1.13 to 2.15.
    """
    with torch.no_grad():
        expected, reference = _reference(subject)
        observe("reference", reference)
        if device.type == "cpu" and reference != "float64":
            pytest.skip(f"nothing to hold it against: {reference}")
        if not all(bool(each.isfinite().all()) for each in expected if each.is_floating_point()):
            pytest.skip("the reference is not finite, so nothing can be held against it")
        got = run(subject.build(), subject.inputs(), device)
    error = max((_error(each, wanted) for each, wanted in zip(got, expected)), default=0.0)
    observe("relative_error", error, better="lower")
    assert len(got) == len(expected)
    assert error < (subject.tolerance or TOLERANCE), f"off by {error:.2g} of the largest element"


def build_without_a_stream(subject: Any) -> nn.Module:
    """Weights that need no generator of torch's: equal on every release."""
    model: nn.Module = subject.build()
    return model


def builds_from_the_stream(subject: Any) -> nn.Module:
    """Weights from wherever torch's stream stands: what differs then says nothing of the computation."""
    model: nn.Module = subject.build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.1)
    return model


@values
@subjects()
@catches(builds_from_the_stream, build=build_without_a_stream)
def test_subject_answer_repeats(build: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject that is built again has the same bits in its answer; observed is the answer, whose drift between releases is told in ULP.

    pytorch/pytorch#75240 is one of many reports of numbers that moved with a release. 1.13 to 2.15.
    """
    with torch.no_grad():
        first, again = (_answers(build(subject).to(device)(*subject.inputs(device=device))) for _ in range(2))
    for index, answer in enumerate(first[:4]):
        observe(f"answer_{index}" if index else "answer", answer)
    other = [index for index, (one, two) in enumerate(zip(first, again)) if not same_bits(one.nan_to_num(), two.nan_to_num())]
    assert not other, f"output {other[0]} has other bits the second time"


class HidesARowWhole(nn.Module):
    """Beside the model, a softmax over nothing but minus infinity."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        answer = _answers(self.model(*inputs))[0]
        return answer + torch.full((2,), float("-inf"), device=answer.device).softmax(0).sum()


@values
@subjects()
@catches(HidesARowWhole, wrap=run_as_it_is)
def test_subject_gives_numbers(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject answers no variation of its inputs with NaN; told is the op that makes the first one, with its line.

    A row that the mask hides whole is the usual cause: softmax over minus infinity alone (pytorch/pytorch#41508). 1.13 to 2.15.
    """
    model = wrap(subject.build()).to(device)
    for name, inputs in subject.all_inputs(device).items():
        with torch.no_grad(), FirstNan() as first:
            nan = [index for index, each in enumerate(_answers(model(*inputs))) if each.is_floating_point() and bool(each.isnan().any())]
        if nan and not any(each.is_floating_point() and bool(each.isnan().any()) for each in inputs):
            observe("first_nan", first.op)
            error = AssertionError(f"variation {name!r}: output {nan[0]} holds NaN, the first of {first.op}")
            blame_first(error, [first.line])
            raise error


def move_it(model: nn.Module) -> nn.Module:
    """What `.to()` moves is moved."""
    return model.to("meta")


class Anchored(nn.Module):
    """Adds a constant that it made where it stood."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.constant = model, torch.ones(2)

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        for tensor in _answers(self.model(*inputs)):
            tensor.flatten()[:2] + self.constant


def keeps_a_constant_behind(model: nn.Module) -> nn.Module:
    """A tensor as a plain attribute stays where it was made."""
    return Anchored(model).to("meta")


@host
@uncounted("what runs on meta is not the cell's device")
@subjects()
@catches(Twin(keeps_a_constant_behind, "raises"), move=move_it)
def test_subject_follows_its_device(move: Code, subject: Any) -> None:
    """A subject that was moved makes nothing elsewhere: no constant, mask or table stays on the device where it was built.

    Seen without another device, on `meta`, in eval and in training mode; a number read in Python cannot be asked there.
    pytorch/torchtitan#164. 1.13 to 2.15.
    """
    model = move(subject.build())
    try:
        for training in (False, True):
            with torch.no_grad():
                model.train(training)(*subject.inputs(device="meta"))
    except (RuntimeError, NotImplementedError) as error:
        if any(told in str(error) for told in READS):
            pytest.skip(f"the model reads a number in Python, which meta has not: {str(error).splitlines()[0][:200]}")
        raise
