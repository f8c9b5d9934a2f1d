"""Subjects that a library brings: `transformers:LlamaModel` (or any of its model classes), `timm:resnet18`, `nanochat:gpt`.

Each is built tiny and with random weights; nothing is ever downloaded.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from conformance.instruments import weights

#: Sizes under every name that a config of transformers may give them; names that a class does not know are ignored by it.
_TINY = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rotary_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "attention_dropout": 0.0,
}
_LENGTH, _VOCABULARY = 8, 48
_BOUNDS = {"batch": (1, 16), "length": (1, 500)}


def find(reference: str) -> tuple[Any, Any] | None:
    """What stands beside the subject, and what builds it, for a reference to a known library; None for any other."""
    library, _, name = reference.partition(":")
    adapter = ADAPTERS.get(library)
    return adapter(name) if adapter is not None and name and "." not in library else None


class FirstOutput(nn.Module):
    """A model of transformers, its inputs by position: ids `(B, T)` and, where it takes one, mask `(B, T)`; gives its first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        """`ids`, `mask` int64."""
        return self.model(input_ids=ids, attention_mask=mask, return_dict=False)[0]


def initialise_transformers(module: nn.Module) -> None:
    """The init of transformers, of a model that was built on meta and has its memory by now.

    Its parts (and parameters, from 5.0) remember that they were initialised, on meta: `init_weights` would pass over all of them.
    """
    for each in (*module.modules(), *module.parameters()):
        if getattr(each, "_is_hf_initialized", False):
            each._is_hf_initialized = False  # type: ignore[union-attr]
    module.model.init_weights()  # type: ignore[operator, union-attr]


def _transformers(name: str) -> tuple[Any, Callable[[], nn.Module]]:
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    kind = getattr(transformers, name)

    def build() -> nn.Module:
        accepted = inspect.signature(kind.config_class.__init__).parameters
        mapped = {*accepted, *kind.config_class.attribute_map}
        config = kind.config_class(**{key: value for key, value in _TINY.items() if key in mapped or key.endswith("_token_id")})
        config.use_cache = False
        return FirstOutput(kind(config))

    def inputs(batch: int = 2, length: int = _LENGTH) -> tuple[Tensor, Tensor]:
        ids = weights.tokens((batch, length), _VOCABULARY, f"{name}:{batch}x{length}", low=4)
        return ids, torch.ones_like(ids)

    return SimpleNamespace(inputs=inputs(), bounds=_BOUNDS, init=initialise_transformers), build


#: Height and width of images, where a model of timm takes others than it was made for.
_SMALL = 64


def _timm(name: str) -> tuple[Any, Callable[[], nn.Module]]:
    import timm

    model = timm.create_model(name, pretrained=False).eval()
    channels, height, width = model.default_cfg["input_size"]
    small = weights.uniform((2, channels, min(height, _SMALL), min(width, _SMALL)), name)
    images = small if _answers(model, small) else weights.uniform((2, channels, height, width), name)
    return SimpleNamespace(inputs=(images,)), lambda: timm.create_model(name, pretrained=False)  # type: ignore[no-any-return]


@torch.no_grad()
def _answers(model: nn.Module, images: Tensor) -> bool:
    try:
        model(images)
    except Exception:  # a patch grid of a fixed size, a stage that is pooled to nothing
        return False
    return True


def _nanochat(name: str) -> tuple[Any, Callable[[], nn.Module]]:
    if name != "gpt":
        raise KeyError(f"nanochat has the subject gpt, not {name!r}")
    from nanochat.gpt import GPT, GPTConfig

    known = inspect.signature(GPTConfig).parameters
    sizes = {"sequence_len": 64, "vocab_size": 48, "n_layer": 4, "n_head": 4, "n_kv_head": 2, "n_embd": 64}
    config = {key: value for key, value in sizes.items() if key in known}
    beside = SimpleNamespace(inputs=(weights.tokens((2, _LENGTH), _VOCABULARY, "nanochat"),), bounds=_BOUNDS)
    return beside, lambda: GPT(GPTConfig(**config))  # type: ignore[no-any-return]


ADAPTERS: dict[str, Callable[[str], tuple[Any, Callable[[], nn.Module]]]] = {
    "transformers": _transformers,
    "timm": _timm,
    "nanochat": _nanochat,
}

#: What the environment of an adapted subject must have.
REQUIREMENTS = {
    "transformers": ("transformers[torch]!=4.50.*,!=4.51.*,!=5.14.*,!=5.19.*",),
    "timm": ("timm",),
    "nanochat": (),
}
