"""Whole models under torch.export, with what varies named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from conformance.incell import catches, limits, requires, subjects, uncounted, values
from conformance.incell.marks import Twin
from conformance.instruments.capture import export
from conformance.instruments.models import check_model

pytestmark = [requires("export"), values, uncounted("torch.export records what runs")]

Code = Callable[..., Any]
Observe = Callable[..., None]
STRICT = pytest.mark.parametrize("strict", [True, False], ids=["strict", "nonstrict"])


def export_what_varies(subject: Any, model: nn.Module, device: torch.device, strict: bool) -> Code:
    """The subject's own axes and bounds."""
    return export(model, subject.inputs(device=device), subject.dynamic(), strict=strict, bounds=subject.bounds).run


def exports_shapes_of_example(subject: Any, model: nn.Module, device: torch.device, strict: bool) -> Code:
    """The example's shapes and no others."""
    return export(model, subject.inputs(device=device), strict=strict).run


@STRICT
@subjects()
@limits(timeout_s=300)
@catches(Twin(exports_shapes_of_example, "raises"), capture=export_what_varies)
def test_subject_export_generalizes(capture: Code, subject: Any, strict: bool, device: torch.device, observe: Observe, stage: Any) -> None:
    """A subject exported with its batch and length named answers all its variations like eager code.

    The article on tracing OPT; karpathy/nanochat. GPT: since 2.1; non-strict raises on 2.10 to 2.12 (a guard on strides that it
    cannot prove). OPT: strict raises on 2.2 to 2.6, since transformers gives those releases code that dynamo cannot follow.
    """
    with stage("build"):
        model = subject.build().to(device).eval()
    with torch.no_grad():
        with stage("capture"):
            run = capture(subject, model, device, strict)
        with stage("compare"):
            check_model(subject, subject.build().to(device).eval(), run, device, observe)
