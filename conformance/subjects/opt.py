"""Hugging Face's real OPTModel, two tiny layers: the subject `opt`, the model of the article on tracing OPT into MLIR.

The model is wrapped: it takes ids and mask by position and gives the hidden states alone, since what it returns (tuples,
ModelOutput, cache objects) changed between versions of transformers, and a trace keeps no ModelOutput.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from conformance.guards.initialisation import reset_all
from conformance.instruments import weights
from conformance.subjects.subject import Inputs, Subject, on_meta

#: `transformers[torch]` lets the resolver take the newest version whose torch bound the release meets. Four series claim a
#: torch that they do not run with, and are left out, so that the one before them is taken: 4.50 and 4.51 read torch.compiler,
#: which torch 2.0 has not; 5.14 takes DTensor from where torch 2.4 has it not; 5.19 does not import OPT on torch 2.5.
#: Seen to resolve to and run with 4.47.1 (torch 1.13.1), 4.49.0 (2.0.1), 4.55.4 (2.1.2), 5.0.0 (2.3.1), 5.13.1 (2.4.1),
#: 5.18.0 (2.5.1), 5.24.0 (2.6.0 and later).
REQUIREMENT = "transformers[torch]!=4.50.*,!=4.51.*,!=5.14.*,!=5.19.*"

VOCABULARY, PAD, LENGTH_LIMIT = 48, 1, 64


class Hidden(nn.Module):
    """ids `(B, T)` and mask `(B, T)`, 1 where a token is, to the last hidden states `(B, T, C)`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """`ids`, `mask` int64."""
        out: tuple[Tensor, ...] = self.model(input_ids=ids, attention_mask=mask, use_cache=False, return_dict=False)
        return out[0]


def config(**changes: Any) -> Any:
    """A tiny OPTConfig without dropout, eager attention where the version knows the choice."""
    from transformers import OPTConfig

    logging.getLogger("transformers").setLevel(logging.ERROR)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": LENGTH_LIMIT,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "layerdrop": 0.0,
        "pad_token_id": PAD,
        "attn_implementation": "eager",
    }
    return OPTConfig(**{**sizes, **changes})


def raw(**changes: Any) -> nn.Module:
    """The bare OPTModel of the installed transformers in eval mode, its weights filled without a random stream."""
    from transformers import OPTModel

    return weights.fill(OPTModel(config(**changes))).eval()


def build() -> nn.Module:
    """The wrapped model in eval mode."""
    return Hidden(raw()).eval()


def skeleton() -> nn.Module:
    """The wrapped model on the meta device."""
    from transformers import OPTModel

    return on_meta(lambda: Hidden(OPTModel(config())))


def inputs(batch: int, length: int, padded: int = 0, name: str = "opt") -> Inputs:
    """ids and mask; the last row begins with `padded` positions of padding."""
    ids = weights.tokens((batch, length), VOCABULARY, f"{name}:{batch}x{length}", low=4)
    mask = torch.ones_like(ids)
    if padded:
        ids[-1, :padded], mask[-1, :padded] = PAD, 0
    return ids, mask


SUBJECT = Subject(
    alias="opt",
    build=build,
    skeleton=skeleton,
    initialise=reset_all,
    requirements=(REQUIREMENT,),
    variations={
        "batch2_length7_padded": lambda: inputs(2, 7, 2),
        "no_padding": lambda: inputs(2, 7),
        "shorter": lambda: inputs(2, 5),
        "batch1": lambda: inputs(1, 7),
        "batch3_longer_padded": lambda: inputs(3, 12, 3),
        "one_token": lambda: inputs(1, 1),
        "other_tokens": lambda: inputs(2, 7, 2, "other"),
    },
    axes={(0, 0): "batch", (0, 1): "length", (1, 0): "batch", (1, 1): "length"},
    bounds={"batch": (1, 16), "length": (1, 60)},
)
