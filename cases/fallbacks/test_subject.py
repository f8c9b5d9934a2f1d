"""A check of any model: which newer APIs of torch it calls while it is built, answers and is trained, recorded with its own lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.incell import catches, subjects, uncounted, values
from conformance.instruments.bits import same_bits
from conformance.instruments.models import run_as_it_is
from conformance.instruments.snapshots import tensors_of
from conformance.instruments.touches import recording
from conformance.instruments.training import gradients

Code = Callable[..., Any]
Observe = Callable[..., None]


class AnswersTheProfiler(nn.Module):
    """A model that does something else while it is watched: what was recorded of it says nothing of how it is used."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        answers = list(tensors_of(self.model(*inputs)))
        return answers if sys.getprofile() is None else [each[..., :1] for each in answers]


@values
@uncounted("what is watched is Python")
@subjects()
@catches(AnswersTheProfiler, wrap=run_as_it_is)
def test_subject_touches(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """Which APIs that 1.13 has not a subject calls: observed under the name of each is the first line outside torch that calls it.

    karpathy/nanochat asks torch 2.1 for F.rms_norm, which came with 2.4. The answer is the same while it is watched. Not seen are names
    that are only read, as a dtype, and keywords of functions written in C: `conformance apis` reads these in the source. 1.13 to 2.15.
    """
    inputs = subject.inputs(device=device)
    with torch.no_grad():
        alone = list(tensors_of(wrap(subject.build()).to(device)(*inputs)))  # what it imports on the way is loaded from here on
    with recording() as touched:
        model = wrap(subject.build()).to(device)
        with torch.no_grad():
            watched = list(tensors_of(model(*inputs)))
        try:
            gradients(subject, model, inputs)
        finally:
            for name, site in sorted(touched.sites.items()):
                observe(name, site)
    assert [each.shape for each in watched] == [each.shape for each in alone], "it answers otherwise while it is watched"
    assert all(same_bits(one.nan_to_num(), two.nan_to_num()) for one, two in zip(watched, alone)), "other bits while it is watched"
