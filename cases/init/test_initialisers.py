"""torch.nn.init under one seed: the bits repeat within a release, and are observed so that releases can be compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

from conformance.guards import initialise
from conformance.incell import catches, dtypes, host, subjects, values
from conformance.incell.torchstate import seed_all
from conformance.instruments.bits import same_bits

INITIALISERS = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
)


def seed_torch(seed: int, device: str) -> None:
    """Seed every generator that torch draws from."""
    seed_all(seed, device)


def seeds_python_only(seed: int, device: str) -> None:
    """Seed Python's generator, from which torch draws nothing."""
    del device
    random.seed(seed)


Seeding = Callable[[int, str], None]


def drawn(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """What `torch.nn.init.<name>` writes; skips where the release has no kernel for this dtype."""
    options = {"sparsity": 0.5} if name == "sparse_" else {}
    try:
        filled: torch.Tensor = getattr(nn.init, name)(torch.empty(shape, dtype=dtype, device=device), **options)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        pytest.skip(str(error).splitlines()[0])
    return filled


@values
@dtypes("float32", "bfloat16", "float16", "float64")
@pytest.mark.parametrize("initialiser", INITIALISERS)
@catches(seeds_python_only, seed=seed_torch)
def test_initialiser_repeats(
    seed: Seeding, initialiser: str, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]
) -> None:
    """An initialiser of torch.nn.init writes the same bits again under the same seed.

    pytorch/pytorch#145498, pytorch/pytorch#166853. Within a release on 1.13 to 2.15. Between releases the observed bits differ:
    float32 trunc_normal_ and float32 normal_ part ways at 2.12, where only the first changes.
    """
    seed(0, device.type)
    first = drawn(initialiser, (40, 24), dtype, device)
    seed(0, device.type)
    second = drawn(initialiser, (40, 24), dtype, device)
    observe("bits", first)
    assert same_bits(first, second)


@values
@dtypes("float32", "bfloat16", "float16")
@pytest.mark.parametrize("count", [8, 16, 1000], ids=["8", "16", "1000"])
@catches(seeds_python_only, seed=seed_torch)
def test_randn_repeats(seed: Seeding, count: int, device: torch.device, dtype: torch.dtype, observe: Callable[..., None]) -> None:
    """`randn` repeats under a seed, for sizes on both sides of the block of 16 at which its CPU kernel changes.

    pytorch/pytorch#80202. Within a release on 1.13 to 2.15; float32 draws of 16 and more differ in the last bits between the
    vector levels of CPUs.
    """
    seed(0, device.type)
    first = torch.randn(count, dtype=dtype, device=device)
    seed(0, device.type)
    second = torch.randn(count, dtype=dtype, device=device)
    observe("bits", first)
    assert same_bits(first, second)


STREAMS: dict[str, Callable[[Any], torch.Tensor]] = {
    "rand": lambda device: torch.rand(100, device=device),
    "randint": lambda device: torch.randint(0, 1000, (100,), device=device),
    "randperm": lambda device: torch.randperm(100, device=device),
    "bernoulli": lambda device: torch.empty(100, device=device).bernoulli_(0.5),
    "exponential": lambda device: torch.empty(100, device=device).exponential_(),
    "dropout": lambda device: functional.dropout(torch.ones(100, device=device), 0.5),
    "multinomial": lambda device: torch.multinomial(torch.ones(20, device=device), 100, replacement=True),
}


@values
@pytest.mark.parametrize("stream", STREAMS)
@catches(seeds_python_only, seed=seed_torch)
def test_stream_repeats(seed: Seeding, stream: str, device: torch.device, observe: Callable[..., None]) -> None:
    """Every consumer of the random stream repeats under a seed: dropout, permutations, samples.

    pytorch/pytorch#154031, pytorch/pytorch#146174. Within a release on 1.13 to 2.15; the observed bits of the CPU's dropout,
    bernoulli_ and exponential_ are others in 2.0 to 2.6.
    """
    seed(0, device.type)
    first = STREAMS[stream](device)
    seed(0, device.type)
    second = STREAMS[stream](device)
    observe("bits", first)
    assert same_bits(first, second)


LAYERS: dict[str, Callable[[Any], nn.Module]] = {
    "linear": lambda device: nn.Linear(24, 40, device=device),
    "conv2d": lambda device: nn.Conv2d(4, 8, 3, device=device),
    "embedding": lambda device: nn.Embedding(40, 24, device=device),
    "lstm": lambda device: nn.LSTM(8, 8, device=device),
    "attention": lambda device: nn.MultiheadAttention(16, 2, device=device),
    "encoder_layer": lambda device: nn.TransformerEncoderLayer(16, 2, 32, device=device),
}


def all_numbers(module: nn.Module) -> torch.Tensor:
    """Every parameter of `module` in one flat tensor, in order of registration."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


@values
@pytest.mark.parametrize("layer", LAYERS)
@catches(seeds_python_only, seed=seed_torch)
def test_layer_repeats(seed: Seeding, layer: str, device: torch.device, observe: Callable[..., None]) -> None:
    """A common layer is built with the same weights again under the same seed.

    Own baseline. Within a release on 1.13 to 2.15, and with the same observed bits between releases.
    """
    seed(0, device.type)
    first = all_numbers(LAYERS[layer](device))
    seed(0, device.type)
    second = all_numbers(LAYERS[layer](device))
    observe("bits", first)
    assert same_bits(first, second)


@values
@subjects()
@catches(seeds_python_only, seed=seed_torch)
def test_subject_init_repeats(seed: Seeding, subject: Any, device: torch.device, observe: Callable[..., None]) -> None:
    """A subject built on meta and initialised twice under one seed has the same weights both times.

    pytorch/torchtitan#1777. Within a release on 1.13 to 2.15.
    """
    models = []
    for _ in range(2):
        seed(0, device.type)
        models.append(subject.fresh(device) if subject.fresh else initialise(subject.skeleton(), device, subject.initialise))
    observe("bits", all_numbers(models[0]))
    first, second = (dict([*model.named_parameters(), *model.named_buffers()]) for model in models)
    other = [name for name in first if not same_bits(first[name], second[name])]
    assert not other, f"other numbers under the same seed: {', '.join(other)}"


#: First three numbers under seed 0, measured on the CPU of 17 releases; equal in all to 2e-5.
GOLDEN: dict[str, tuple[float, float, float]] = {
    "linear": (-0.00265, 0.18966, -0.29099),
    "embedding": (-1.12584, -1.15236, -0.25058),
    "lstm": (-0.35042, 0.15959, -0.1698),
    "attention": (0.17018, 0.35877, 0.37681),
    "orthogonal": (-0.51372, -0.27372, -0.25531),
    "xavier_normal": (-0.39804, -0.40742, -0.08859),
    "randperm": (4.0, 1.0, 7.0),
}
DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "linear": lambda: nn.Linear(8, 8).weight,
    "embedding": lambda: nn.Embedding(8, 8).weight,
    "lstm": lambda: nn.LSTM(8, 8).weight_hh_l0,
    "attention": lambda: nn.MultiheadAttention(8, 2).in_proj_weight,
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(8, 8)),
    "xavier_normal": lambda: nn.init.xavier_normal_(torch.empty(8, 8)),
    "randperm": lambda: torch.randperm(10).float(),
}


def seed_right_before(draw: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Seed, then draw."""
    torch.manual_seed(0)
    return draw()


def seeds_before_another_layer(draw: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Seed, then build something else first."""
    torch.manual_seed(0)
    nn.Linear(2, 2)
    return draw()


@host
@pytest.mark.parametrize("draw", GOLDEN)
@catches(seeds_before_another_layer, build=seed_right_before)
def test_float32_golden(build: Callable[[Callable[[], torch.Tensor]], torch.Tensor], draw: str) -> None:
    """In float32 on the CPU these layers and initialisers start with the same numbers on every release, to 2e-5.

    Own baseline: what does hold. 1.13 to 2.15.
    """
    first = build(DRAWS[draw]).detach().flatten()[:3]
    torch.testing.assert_close(first, torch.tensor(GOLDEN[draw]), rtol=0, atol=2e-5)
