"""The instruments: what they take for a difference, a refusal and an untouched number."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from torch import nn

from conformance import subjects
from conformance.guards import materialise
from conformance.instruments import poison, weights
from conformance.instruments.assignments import assigned
from conformance.instruments.capture import device_constants, nodes, trace
from conformance.instruments.generalization import check_generalizes, difference_of
from conformance.instruments.nans import FirstNan
from conformance.instruments.zeroed import Zeroed
from conformance.subjects.gpt import GPT, skeleton
from conformance.subjects.subject import Subject, on_meta


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


ONE = torch.ones(2)


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (ONE, ONE + 1e-7, ""),
        (ONE, ONE + 1e-3, "2 of 2 elements differ"),
        (ONE, ONE.double(), "dtype torch.float32, got torch.float64"),
        (ONE, ONE.view(1, 2), "shape torch.Size([2]), got torch.Size([1, 2])"),
        (ONE, 1.0, "a tensor, got float"),
        (ONE * float("nan"), ONE * float("nan"), ""),
        (ONE * float("nan"), ONE, "2 of 2 elements differ"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 of 2 elements differ"),
        ((ONE, [ONE]), (ONE, (ONE,)), ""),
        ((ONE, ONE), (ONE,), "2 items, got 1"),
        ({"a": ONE}, {"b": ONE}, "keys ['a'], got ['b']"),
        ({"a": ONE}, {"a": ONE + 1}, "output['a']: 2 of 2"),
        (Pair(ONE, 1), Pair(ONE, 2), "output.second: 1, got 2"),
        ((ONE, None), (ONE, None), ""),
        ((ONE, 3), (ONE, 3.0), "output[1]: 3, got 3.0"),
    ],
)
def test_differences_are_worded(expected: Any, got: Any, words: str) -> None:
    found = difference_of(expected, got)
    assert words in found
    assert bool(found) is bool(words)


def _observed() -> tuple[dict[str, Any], Any]:
    seen: dict[str, Any] = {}
    return seen, lambda name, value, **_: seen.update({name: value})


def test_a_wrong_answer_outranks_a_refusal() -> None:
    def program(x: Any) -> Any:
        if x.numel() == 3:
            raise RuntimeError("refused")
        return x * 2

    seen, observe = _observed()
    inputs = {"two": (torch.ones(2),), "three": (torch.ones(3),), "four": (torch.ones(4),)}
    with pytest.raises(AssertionError, match=r"^variation 'four': output: 4 of 4 elements differ"):
        check_generalizes(lambda x: x if x.numel() == 4 else x * 2, program, inputs, observe)
    assert seen == {"variations": "two=ok, three=raises RuntimeError, four=wrong", "first_failing": "three"}


def test_a_refusal_alone_is_torchs_own_exception() -> None:
    refusal = IndexError("index out of range")

    def program(x: Any) -> Any:
        raise refusal

    with pytest.raises(IndexError) as caught:
        check_generalizes(lambda x: x, program, {"two": (ONE,)})
    assert caught.value is refusal


def test_what_eager_refuses_the_program_must_refuse() -> None:
    def eager(x: Any) -> Any:
        raise ValueError("odd")

    check_generalizes(eager, eager, {"two": (ONE,)})
    with pytest.raises(AssertionError, match="eager raises ValueError, the captured program answers"):
        check_generalizes(eager, lambda x: x, {"two": (ONE,)})


def test_programs_get_copies_of_the_inputs() -> None:
    x = torch.zeros(2)
    check_generalizes(lambda x: x.add_(1), lambda x: x.add_(1), {"zeros": (x,)})
    assert x.tolist() == [0.0, 0.0]


class Partly(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole, self.partly = torch.nn.Parameter(torch.empty(4)), torch.nn.Parameter(torch.empty(4))
        self.register_buffer("flags", torch.empty(2, dtype=torch.bool), persistent=False)
        self.register_buffer("steps", torch.empty(1, dtype=torch.int64))

    @torch.no_grad()
    def init(self, flags: bool) -> None:
        self.whole.fill_(float("nan"))
        self.partly[:2].fill_(1.0)
        self.steps.fill_(77)
        if flags:
            self.flags.fill_(True)


def test_poison_finds_halves_and_accepts_what_looks_like_poison() -> None:
    assert poison.untouched(Partly, lambda module: module.init(flags=True)) == ["partly"]
    assert poison.untouched(Partly, lambda module: module.init(flags=False)) == ["flags", "partly"]
    assert poison.untouched(lambda: on_meta(Partly), lambda module: None) == ["flags", "partly", "steps", "whole"]


def test_poison_names_what_nanochat_forgot() -> None:
    def forgetful(model: GPT) -> None:
        model.init_matrices()
        model.rotary.reset_parameters()

    left = poison.untouched(lambda: materialise(skeleton(), "cpu"), forgetful)
    assert left == ["backout_lambda", "smear_gate.weight", "smear_lambda"]


def test_weights_are_the_same_everywhere_and_spread() -> None:
    drawn = weights.uniform((4096,), "a")
    assert [round(value, 6) for value in drawn[:3].tolist()] == [0.348464, 0.75789, -0.678401]
    assert abs(float(drawn.mean())) < 0.05
    assert abs(float(drawn.var()) - 1 / 3) < 0.02
    assert not torch.equal(drawn, weights.uniform((4096,), "b"))
    assert float(drawn.min()) >= -1.0
    assert float(drawn.max()) < 1.0
    ids = weights.tokens((1000,), 7, low=2)
    assert sorted(set(ids.tolist())) == [2, 3, 4, 5, 6]


def test_filling_weights_draws_nothing() -> None:
    before = torch.get_rng_state()
    first, second = (weights.fill(torch.nn.Linear(3, 2, device="meta").to_empty(device="cpu")) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_tracer_warnings_are_places_and_nodes_outlive_the_call() -> None:
    traced = trace(lambda x: x + int(x.size(0)) + torch.zeros(1, device=x.device), (ONE,))
    assert len(traced.warned) == 1
    assert traced.warned[0].startswith("test_instruments.py:")
    found = nodes(traced, "aten::add")
    assert [node.kind() for node in found] == ["aten::add", "aten::add"]
    assert device_constants(traced) == ["cpu"]


def test_subjects_are_found_by_alias_and_refuse_nonsense() -> None:
    gpt = subjects.get("gpt")
    assert gpt.inputs()[0].shape == (2, 7)
    assert gpt.dynamic() == ({0: "batch", 1: "length"},)
    with pytest.raises(KeyError, match="no subject 'bert': there are gpt, opt"):
        subjects.get("bert")
    with pytest.raises(KeyError, match="no variation 'longest'"):
        gpt.inputs("longest")
    with pytest.raises(ValueError, match="only a-z"):
        Subject(alias="Not-Mine", build=gpt.build, variations=gpt.variations)


def test_gpt_uses_each_of_its_parameters() -> None:
    gpt = subjects.get("gpt")
    model = gpt.build()
    model(*gpt.inputs()).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)] == []


class Forgetful(nn.Module):
    """One parameter, a scale and a table that `forward` replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(1000))
        self.part = nn.Linear(4, 4)
        self.part.register_buffer("table", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.part.table = torch.ones(len(x))
        return self.part(x)


def test_the_line_that_assigned_a_tensor_last_is_known() -> None:
    with assigned() as lines:
        model = Forgetful()
    assert lines.line(model, "scale")["source"] == "self.scale = nn.Parameter(torch.empty(1000))"
    assert lines.line(model, "part.weight")["source"] == "self.part = nn.Linear(4, 4)"
    assert lines.line(model, "part.table")["source"] == 'self.part.register_buffer("table", torch.ones(2))'
    with assigned() as lines:
        model(torch.ones(3, 4))
    assert lines.line(model, "part.table")["source"] == "self.part.table = torch.ones(len(x))"
    assert lines.line(model, "scale") == lines.line(model, "nowhere.else") == {}


def test_modules_assign_as_before_once_nobody_looks() -> None:
    before = (nn.Module.__setattr__, nn.Module.register_buffer, nn.Module.register_parameter)
    with pytest.raises(RuntimeError), assigned():
        raise RuntimeError
    assert before == (nn.Module.__setattr__, nn.Module.register_buffer, nn.Module.register_parameter)


def test_a_module_that_is_watched_is_asked_as_before() -> None:
    """torch 2.6 looks at the signature of `register_buffer` before it assigns a buffer."""
    before = {way: inspect.signature(getattr(nn.Module, way)) for way in ("__setattr__", "register_buffer", "register_parameter")}
    with assigned():
        assert {way: inspect.signature(getattr(nn.Module, way)) for way in before} == before
        cache = nn.Module()
        cache.register_buffer("table", torch.ones(2), persistent=False)
        cache.table = torch.ones(3)
    assert cache.state_dict() == {}


def test_memory_that_nobody_wrote_holds_zeros() -> None:
    for _ in range(3):
        torch.full((1000,), 7.0)  # leaves the heap full of sevens
        with Zeroed():
            scale = Forgetful().scale
        assert scale.abs().max() == 0
    with Zeroed():
        assert torch.empty_like(torch.ones(3)).sum() == torch.ones(2).new_empty(5).sum() == torch.empty_strided((2,), (1,)).sum() == 0
        assert torch.ones(2).sum() == 2


def test_the_op_and_line_that_make_the_first_nan_are_told() -> None:
    with FirstNan() as first:
        scores = torch.full((2, 2), float("-inf"))
        hidden = scores.softmax(-1)
        hidden @ torch.ones(2, 2)
    assert first.op == "aten::_softmax"
    assert first.line["source"] == "hidden = scores.softmax(-1)"
    with FirstNan() as none:
        torch.tensor([float("nan")]) + 1
        torch.full((2,), float("inf")) + 1
    assert (none.op, none.line) == ("", {})
