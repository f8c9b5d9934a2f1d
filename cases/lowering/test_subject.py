"""Whole models on the way to MLIR: Hugging Face's OPT, a GPT of nanochat's architecture, and any that a user hands over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

from conformance.incell import catches, deep, host, limits, requires, subjects
from conformance.incell.marks import Twin
from conformance.instruments import children
from conformance.instruments.lowering import routes
from conformance.instruments.lowering.journey import Journey, Luggage
from conformance.instruments.lowering.subjects import SHAPES, pack_subject
from conformance.instruments.models import AsItIs

pytestmark = [host, requires("torch-mlir", "iree-base-compiler", "iree-base-runtime")]

Wrap = Callable[[nn.Module], nn.Module]


class EndsInMedian(AsItIs):
    """The model, and behind it an op that the torch dialect has not."""

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs; its first tensor, and the median beside it."""
        found = self.model(*inputs)
        tensor = found if isinstance(found, Tensor) else next(iter(found.values() if isinstance(found, dict) else found))
        return tensor, self.beside(tensor)

    def beside(self, tensor: Tensor) -> Tensor:
        """The line to blame."""
        return tensor.float().median(-1)[0]


def _taken(wrap: Wrap, subject: Any, route: str, shapes: str, backend: str, journey: Journey) -> None:
    luggage = pack_subject(subject, shapes)
    journey.take(Luggage(wrap(luggage.model).eval(), luggage.inputs, luggage.varying, luggage.bounds), route, backend)


@subjects()
@limits(timeout_s=300)
@pytest.mark.parametrize("shapes", SHAPES)
@routes.both
@catches(Twin(EndsInMedian, "raises"), wrap=AsItIs)
def test_subject_lowers(wrap: Wrap, subject: Any, route: str, shapes: str, journey: Journey) -> None:
    """A subject goes down through linalg and runs like eager code on other batches, lengths and masks, as far as its sizes are left open.

    The article on tracing OPT. OPT and GPT, with torch 1.13 to 2.15: through export since 2.4; with batch and length open, and traced
    with length alone, OPT stops at llvm/torch-mlir#4743.
    """
    _taken(wrap, subject, route, shapes, "reference", journey)


@subjects()
@limits(timeout_s=240)
@routes.both
@catches(Twin(EndsInMedian, "raises"), wrap=AsItIs)
def test_subject_runs_on_iree(wrap: Wrap, subject: Any, route: str, journey: Journey) -> None:
    """A subject goes down through IREE, which takes the torch dialect, and runs like eager code with batch and length open.

    iree-base-compiler 3.13 for llvm-cpu; OPT and GPT, with torch 1.13 to 2.15, through export since 2.4.
    """
    _taken(wrap, subject, route, "all", "iree", journey)


@deep
@limits(timeout_s=900, memory_mb=12_000)
@routes.both
@requires("transformers")
def test_opt_of_12_layers_native(route: str, journey: Journey) -> None:
    """The default OPT, 12 layers and 125 million parameters, runs on IREE like eager code.

    The article on tracing OPT; transformers' OPTConfig() as it comes, torch 1.13 to 2.15, through export since 2.4.
    """
    from conformance.subjects import opt

    changes = {"vocab_size": 50272, "hidden_size": 768, "word_embed_proj_dim": 768, "ffn_dim": 3072, "num_hidden_layers": 12}
    model = opt.Hidden(opt.raw(**changes, num_attention_heads=12, max_position_embeddings=2048)).eval()
    inputs = {"batch2_length7": opt.inputs(2, 7, 2), "batch1_length5": opt.inputs(1, 5), "batch2_length16": opt.inputs(2, 16, 3)}
    open_axes = {0: "batch", 1: "length"}
    luggage = Luggage(model, inputs, [open_axes, open_axes], {"batch": (1, 16), "length": (1, 64)})
    long = children.Limit(seconds=400.0, megabytes=16_000)
    journey.within(long, long).take(luggage, route, "iree")
