"""Subjects by reference, where torch is: what is taken, what varies, and what is told of what can be none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from conformance.instruments.shrinking import smallest
from conformance.instruments.symbolic import symbolic
from conformance.instruments.training import loss_of, optimizer_of, step
from conformance.subjects.keywords import Named
from conformance.subjects.parts import of as parts_of
from conformance.subjects.references import SubjectError, load
from conformance.subjects.variations import infer_axes, resized

MODELS = Path(__file__).parent.parent / "models"


@pytest.mark.parametrize(
    ("build", "error", "told"),
    [
        ("raises", ValueError, "no such checkpoint"),
        ("no_inputs", SubjectError, "takes inputs that nobody gave"),
        ("no_module", SubjectError, "gave a int, not an nn.Module"),
        ("wants", SubjectError, "wants width"),
        ("nothing", SubjectError, "has no 'nothing'; it has"),
        ("text", SubjectError, "gives no tensor"),
        ("unsteady", SubjectError, "gives another answer when it is asked again"),
        ("drops", SubjectError, r"aten::bernoulli_ at unfit.py:\d+ draws random numbers, though the model was told eval"),
        ("counts", SubjectError, "it keeps step from one call to the next"),
        ("scales", SubjectError, "it writes into its argument 1"),
        ("shuffles", SubjectError, r"draws outside torch \(random, numpy\)"),
        ("needs_a_gpu", Exception, "(?i)cuda|nvidia"),
    ],
)
def test_what_can_be_no_subject_is_told(build: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        load("unfit", f"{MODELS / 'unfit.py'}:{build}")


@pytest.mark.parametrize(("build", "alike"), [("gru", True), ("features", False)])
def test_builds_draw_alike_and_a_rebuild_anew(build: str, alike: bool) -> None:
    subject = load("drawing", f"{MODELS / 'drawing.py'}:{build}")
    inputs, state = subject.inputs(), torch.random.get_rng_state()
    one, two, other = subject.build(), subject.build(), subject.rebuilt()
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.no_grad():
        assert torch.equal(one(*inputs), two(*inputs))
        other.load_state_dict(one.state_dict())
        assert torch.equal(one(*inputs), other(*inputs)) is alike


def test_the_line_that_draws_is_to_blame() -> None:
    with pytest.raises(SubjectError) as error:
        load("unfit", f"{MODELS / 'unfit.py'}:drops")
    assert error.value.blame["source"] == "return functional.dropout(x, 0.5)"


def _beside(**parts: object) -> SimpleNamespace:
    return SimpleNamespace(**parts)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"loss": lambda: 0.0}, r"loss beside m:build is called as loss\(answer\), and cannot be: too many positional arguments"),
        ({"init": lambda module, depth: None}, r"called as init\(module\), and cannot be: missing a required argument: 'depth'"),
        ({"tolerance": 2}, "tolerance beside m:build is 2: give a number between 0 and 1"),
        ({"tolerance": True}, "tolerance beside m:build is True"),
        ({"tolerance": "small"}, "tolerance beside m:build is 'small'"),
    ],
)
def test_a_part_that_cannot_be_what_its_name_says_is_told(parts: dict[str, object], told: str) -> None:
    with pytest.raises(SubjectError, match=told):
        parts_of(_beside(**parts), "m:build")


def test_what_cannot_be_called_is_no_part() -> None:
    assert parts_of(_beside(init=torch.nn.init, loss=None), "m:build") == parts_of(_beside(), "m:build")


def test_a_subject_trains_as_it_says() -> None:
    subject = load("trained", f"{MODELS / 'trained.py'}:build")
    assert subject.tolerance == 1e-4
    model = subject.build()
    optimizer = optimizer_of(subject, model)
    assert isinstance(optimizer, torch.optim.SGD)
    losses = [float(step(subject, model, optimizer, subject.inputs())) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_loss_that_is_no_scalar_and_what_is_no_optimizer_are_told() -> None:
    subject = load("trained", f"{MODELS / 'trained.py'}:build")
    with pytest.raises(TypeError, match=r"must be a tensor of one number, is of shape \(4, 2\)"):
        loss_of(replace(subject, loss=lambda answer: answer), torch.ones(4, 2))
    with pytest.raises(TypeError, match=r"must be a torch\.optim\.Optimizer, is list"):
        optimizer_of(replace(subject, optimizer=list), subject.build())


def test_symbolic_keeps_optional_arguments_at_their_defaults() -> None:
    model, inputs = Optional(), (torch.ones(2, 3),)
    assert torch.equal(symbolic(model, inputs)(torch.full((4, 3), 2.0)), torch.full((4, 3), 4.0))
    assert torch.equal(symbolic(Named(model, ("x",)), inputs)(torch.ones(1, 3)), torch.full((1, 3), 2.0))


class Optional(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x * 2 if mask is None else x * mask


def test_inputs_are_a_function_of_sizes() -> None:
    subject = load("frozen", f"{MODELS / 'frozen.py'}:build")
    shapes = {name: tuple(subject.inputs(name)[0].shape) for name in subject.variations}
    assert shapes["example"] == (2, 6)
    assert (shapes["batch1"], shapes["batch3"], shapes["length1"], shapes["length17"]) == ((1, 6), (3, 6), (2, 1), (2, 17))


def test_example_inputs_are_varied_along_what_varies() -> None:
    subject = load("sound", f"{MODELS / 'sound.py'}:build")
    assert subject.sizes() == {"batch": 2, "length": 6}
    assert {"batch1", "length1", "length13", "masked_row_1", "noncontiguous"} <= set(subject.variations)
    tokens, mask = subject.inputs("length13")
    assert tokens.shape == mask.shape == (2, 13)
    assert subject.inputs("masked_row_1")[1][-1].tolist() == [0] * 6
    assert not subject.inputs("noncontiguous")[0].is_contiguous()


def test_what_eager_code_refuses_is_no_variation() -> None:
    subject = load("forgetful", f"{MODELS / 'forgetful.py'}:build")
    assert set(subject.variations) == {"example", "batch1", "batch3", "noncontiguous"}


@pytest.mark.parametrize(
    ("shape", "dtype", "axes"),
    [
        ((2, 6), torch.int64, {(0, 0): "batch", (0, 1): "length"}),
        ((2, 6), torch.float32, {(0, 0): "batch"}),
        ((2, 6, 4), torch.float32, {(0, 0): "batch", (0, 1): "length"}),
        ((2, 3, 8, 9), torch.float32, {(0, 0): "batch", (0, 2): "height", (0, 3): "width"}),
        ((), torch.float32, {}),
    ],
)
def test_axes_are_inferred(shape: tuple[int, ...], dtype: torch.dtype, axes: dict[tuple[int, int], str]) -> None:
    assert infer_axes((torch.ones(shape).to(dtype),)) == axes


def test_more_rows_are_the_same_rows_in_turn() -> None:
    (more,) = resized((torch.arange(3)[:, None],), {(0, 0): "batch"}, {"batch": 5})
    assert more[:, 0].tolist() == [0, 1, 2, 0, 1]


def test_the_smallest_failing_input_is_found() -> None:
    assert smallest({"batch": 2, "length": 8}, lambda sizes: sizes["length"] > 8) == {"batch": 1, "length": 9}
    assert smallest({"batch": 2, "length": 8}, lambda sizes: sizes["batch"] == 3) == {"batch": 3, "length": 1}
    assert smallest({"batch": 2, "length": 8}, lambda sizes: False) is None
