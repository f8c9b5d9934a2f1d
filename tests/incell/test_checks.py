"""Checks of a subject, called as the plugin calls them: each finds the fault that is planted in a model, and names its line."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance.incell.registered import REGISTERED, register
from conformance.subjects.references import load

ROOT = Path(__file__).parent.parent.parent
CPU = torch.device("cpu")


def _check(path: str, name: str) -> tuple[Callable[..., None], dict[str, Any]]:
    """The check, and the right idiom that it is called with."""
    spec = importlib.util.spec_from_file_location(f"checks_{path.replace('/', '_').removesuffix('.py')}", ROOT / "cases" / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    check = getattr(module, f"test_subject_{name}")
    (right,) = [mark.kwargs for mark in check.pytestmark if mark.name == "catches"]
    return check, right


def run(path: str, name: str, reference: str) -> None:
    """The check on a model of tests/models, `file.py:build`."""
    check, right = _check(path, name)
    given = {"device": CPU, "observe": lambda *_, **__: None, "dtype": torch.bfloat16, "stage": lambda _: contextlib.nullcontext()}
    taken = check.__code__.co_varnames[: check.__code__.co_argcount]
    register("planted", str(ROOT / "tests" / "models" / reference))
    subject = load("planted", REGISTERED["planted"])
    check(subject=subject, **right, **{name: value for name, value in given.items() if name in taken})


HISTORY = "rope/test_subject_history.py"
MODES = "mps/test_subject_modes.py"
USE = "init/test_subject_use.py"
#: File and name of the check, the model, words of what it says, and the line that it blames.
PLANTED = [
    (HISTORY, "forgets_its_inputs", "remembering.py:stretched", "it remembers longest", "self.longest = max(self.longest, x.size(1))"),
    (HISTORY, "forgets_its_inputs", "remembering.py:biased", "'masked_row_1' is answered otherwise", "self.bias = torch.where("),
    (HISTORY, "casts_after_use", "remembering.py:by_length", "dtype", "self.tables[x.size(1)] = super().positions(x)"),
    ("rope/test_subject.py", "growth_keeps", "remembering.py:saved", "holds table", 'self.register_buffer("table", super().positions(x))'),
    ("rope/test_subject.py", "trains_after_inference", "remembering.py:in_a_tuple", "Inference tensors", "self.factors = (torch.ones(2"),
    ("init/test_subject_training.py", "resumes", "remembering.py:running", "after a strict load", "self.scale = 0.5 * self.scale"),
    ("init/test_subject.py", "init_reads_no_memory", "circumstances.py:reading", "held shows in head.weight", ""),
    ("init/test_subject_process.py", "init_is_every_process", "circumstances.py:ordered", "in another process: layers", ""),
    (USE, "leaves_weights_and_answers", "using.py:normalising", "answering changed head.weight", ""),
    (USE, "leaves_weights_and_answers", "using.py:reusing", "the first call changed", ""),
    (USE, "loads_after_use", "using.py:fused", "than a fresh one", "self.product = (self.up.weight"),
    (MODES, "answers_alike_in_grad_modes", "circumstances.py:recording", "under no_grad", "if torch.is_grad_enabled():"),
    (MODES, "answers_alike_in_grad_modes", "circumstances.py:trying", "under no_grad", ""),
    (MODES, "answers_alike_in_layouts", "circumstances.py:strided", "that are transposed", ""),
    ("compile/test_models.py", "settles", "circumstances.py:counting", "calls == ", "self.calls += 1"),
    ("compile/test_models.py", "settles", "circumstances.py:listing", "history", "self.history.append(h.mean())"),
]


@pytest.mark.parametrize(("path", "name", "reference", "words", "line"), PLANTED)
def test_a_planted_fault_is_found_and_blamed_on_its_line(path: str, name: str, reference: str, words: str, line: str) -> None:
    with pytest.raises((AssertionError, RuntimeError), match=words) as told:
        run(path, name, reference)
    if line:
        assert line in told.value.blame["source"]  # type: ignore[attr-defined]


SOUND = sorted({(path, name) for path, name, *_ in PLANTED})


@pytest.mark.parametrize("reference", ["sound.py", "recurrent.py"])
@pytest.mark.parametrize(("path", "name"), SOUND)
def test_a_sound_model_is_not_blamed(path: str, name: str, reference: str) -> None:
    with contextlib.suppress(pytest.skip.Exception):
        run(path, name, f"{reference}:build")
