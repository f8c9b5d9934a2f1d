"""A GPT with nanochat's architecture (karpathy/nanochat), written anew: the subject `gpt`.

Rotary positions in non-persistent buffers, QK norm, parameter-free rms_norm, grouped queries, windows on alternating layers,
squared ReLU, value embeddings on alternating layers, a residual and an embedding scalar a layer, a smear gate, a backout
scalar, an untied head and a softcap on the logits. Built on meta, then `to_empty`, then `init_weights`; runs on torch 1.13
and later, on any device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.guards.masks import positions_like, visible
from conformance.guards.norms import rms_norm
from conformance.guards.rotary import RotaryCache, rotate
from conformance.instruments import weights
from conformance.subjects.subject import Inputs, Subject, on_meta


@dataclass(frozen=True)
class Config:
    """Sizes of a GPT; the default is tiny. `gate_width` channels of the input decide the gates."""

    vocabulary: int = 48
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    width: int = 32
    window: int = 6
    rows: int = 64
    gate_width: int = 8
    softcap: float = 15.0

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Channels of all key or value heads together."""
        return self.kv_heads * self.head_dim

    def has_values(self, layer: int) -> bool:
        """Value embeddings live on alternating layers, the last one among them."""
        return layer % 2 == (self.layers - 1) % 2

    def reach(self, layer: int) -> int | None:
        """The window of `layer`: short on even layers, unlimited on odd ones and the last."""
        return self.window if layer % 2 == 0 and layer != self.layers - 1 else None


class Attention(nn.Module):
    """Causal attention `(B, T, C)` over grouped heads, with normed and rotated queries and keys."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.reach = config, config.reach(layer)
        self.queries = nn.Linear(config.width, config.width, bias=False)
        self.keys = nn.Linear(config.width, config.kv_width, bias=False)
        self.values = nn.Linear(config.width, config.kv_width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.value_gate = nn.Linear(config.gate_width, config.kv_heads, bias=False) if config.has_values(layer) else None

    def forward(self, x: Tensor, extra: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor) -> Tensor:
        """`x` `(B, T, C)`; `extra` `(B, T, kv_width)` is the value embedding of the tokens, gated per head."""
        c = self.config
        batch, length = x.size(0), x.size(1)
        q = self.queries(x).view(batch, length, c.heads, c.head_dim)
        k = self.keys(x).view(batch, length, c.kv_heads, c.head_dim)
        v = self.values(x).view(batch, length, c.kv_heads, c.head_dim)
        if extra is not None and self.value_gate is not None:
            gate = 2 * torch.sigmoid(self.value_gate(x[..., : c.gate_width]))
            v = v + gate.unsqueeze(-1) * extra.view(batch, length, c.kv_heads, c.head_dim)
        q, k = rms_norm(rotate(q, cos, sin)), rms_norm(rotate(k, cos, sin))
        mixed = attend(q, k, v, visible(positions, positions, self.reach), c.heads // c.kv_heads)
        return self.out(mixed.reshape(batch, length, c.width))


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, group: int) -> Tensor:
    """Softmax attention of `q` `(B, T, group * G, D)` on `k`, `v` `(B, S, G, D)` where `seen` `(T, S)`; result as `q`.

    `group` is the caller's integer: got from sizes it would be a tensor while tracing (the fate of `enable_gqa=q.size(1) != k.size(1)`).
    """
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    k, v = repeat_heads(k, group), repeat_heads(v, group)
    scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def repeat_heads(x: Tensor, group: int) -> Tensor:
    """`x` `(B, G, S, D)` to `(B, group * G, S, D)`; `repeat_interleave` would freeze sizes under torch.export until 2.4."""
    return x if group == 1 else x.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(1, 2)


class Block(nn.Module):
    """Attention and a squared-ReLU perceptron, each on the normed stream and added to it."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.attention = Attention(config, layer)
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: Tensor, extra: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor) -> Tensor:
        """`(B, T, C)` to `(B, T, C)`."""
        x = x + self.attention(rms_norm(x), extra, cos, sin, positions)
        return x + self.down(functional.relu(self.up(rms_norm(x))).square())


class GPT(nn.Module):
    """Token ids `(B, T)` to capped logits `(B, T, vocabulary)`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.value_embeddings = nn.ModuleDict(
            {str(layer): nn.Embedding(config.vocabulary, config.kv_width) for layer in range(config.layers) if config.has_values(layer)}
        )
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.resid_lambdas = nn.Parameter(torch.empty(config.layers))
        self.x0_lambdas = nn.Parameter(torch.empty(config.layers))
        self.smear_gate = nn.Linear(config.gate_width, 1, bias=False)
        self.smear_lambda = nn.Parameter(torch.empty(1))
        self.backout_lambda = nn.Parameter(torch.empty(1))
        self.rotary = RotaryCache(config.head_dim, config.rows)

    def init_weights(self) -> None:
        """Write every parameter and buffer: what meta and `to_empty` left is memory as it was."""
        self.init_matrices()
        self.init_smear_and_backout()
        self.rotary.reset_parameters()

    @torch.no_grad()
    def init_matrices(self) -> None:
        """Embeddings, projections and the scalars of the layers."""
        bound = (3.0 / self.config.width) ** 0.5
        nn.init.normal_(self.embedding.weight, std=0.8)
        nn.init.normal_(self.head.weight, std=0.001)
        for table in self.value_embeddings.values():
            nn.init.uniform_(table.weight, -bound, bound)
        for block in self.blocks:
            attention = block.attention
            for matrix in (attention.queries, attention.keys, attention.values, block.up):
                nn.init.uniform_(matrix.weight, -bound, bound)
            for matrix in (attention.out, block.down):
                nn.init.zeros_(matrix.weight)
            if attention.value_gate is not None:
                nn.init.zeros_(attention.value_gate.weight)
        nn.init.ones_(self.resid_lambdas)
        nn.init.constant_(self.x0_lambdas, 0.1)

    @torch.no_grad()
    def init_smear_and_backout(self) -> None:
        """The gate and the two scalars that karpathy/nanochat#686 found left out."""
        nn.init.uniform_(self.smear_gate.weight, 0.0, 0.02)
        nn.init.zeros_(self.smear_lambda)
        nn.init.constant_(self.backout_lambda, 0.2)

    def forward(self, ids: Tensor) -> Tensor:
        """`ids` int64 `(B, T)`."""
        cos, sin = self.rotary(ids.size(1))
        positions = positions_like(ids)
        x = start = self.smear(rms_norm(self.embedding(ids)))
        middle = None
        for layer, block in enumerate(self.blocks):
            x = self.resid_lambdas[layer] * x + self.x0_lambdas[layer] * start
            name = str(layer)
            extra = self.value_embeddings[name](ids) if name in self.value_embeddings else None
            x = block(x, extra, cos, sin, positions)
            if layer == self.config.layers // 2:
                middle = x
        if middle is not None:
            x = x - self.backout_lambda * middle
        return self.config.softcap * torch.tanh(self.head(rms_norm(x)) / self.config.softcap)

    def smear(self, x: Tensor) -> Tensor:
        """Mix into each token `(B, T, C)` a gated share of the token before it; the first has none.

        Shifted by padding: `x[:, 1:]` would bar lengths 1 and 2 from an exported program.
        """
        gate = self.smear_lambda * torch.sigmoid(self.smear_gate(x[..., : self.config.gate_width]))
        before = functional.pad(x, (0, 0, 1, 0))[:, :-1]
        return x + gate * before


def skeleton(config: Config | None = None) -> GPT:
    """A GPT on the meta device: shapes and no numbers."""
    return on_meta(lambda: GPT(config or Config()))


def build(config: Config | None = None) -> nn.Module:
    """A GPT in eval mode with weights that need no random stream, every path of it alive."""
    with torch.random.fork_rng(devices=[]):
        model = GPT(config or Config())
        model.init_weights()
    return weights.fill(model).eval()


def _ids(batch: int, length: int, name: str = "gpt") -> Inputs:
    return (weights.tokens((batch, length), Config().vocabulary, f"{name}:{batch}x{length}"),)


SUBJECT = Subject(
    alias="gpt",
    build=build,
    skeleton=skeleton,
    initialise=lambda model: model.init_weights(),  # type: ignore[operator]
    variations={
        "batch2_length7": lambda: _ids(2, 7),
        "shorter": lambda: _ids(2, 5),
        "batch1": lambda: _ids(1, 7),
        "batch3_longer": lambda: _ids(3, 12),
        "one_token": lambda: _ids(2, 1),
        "other_tokens": lambda: _ids(2, 7, "other"),
    },
    axes={(0, 0): "batch", (0, 1): "length"},
    bounds={"batch": (1, 16), "length": (1, 64)},
)
