"""Random numbers on any device: one stream for all, a generator that belongs there, in-place draws that reach every element."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from conformance.guards import drawn_like, generator_for
from conformance.incell import catches, dtypes, values
from conformance.instruments.bits import same_bits
from conformance.instruments.layouts import LAYOUTS


def draws_in_low_precision(x: Tensor, seed: int) -> Tensor:
    """bfloat16 draws are others than rounded float32 ones."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype).to(x.device)


def draws_from_global_stream(x: Tensor, seed: int) -> Tensor:
    """Seeds everybody's stream."""
    torch.manual_seed(seed)
    return torch.randn(x.shape).to(x.dtype).to(x.device)


@values
@dtypes("bfloat16")
@catches(draws_in_low_precision, draws_from_global_stream, draw=drawn_like)
def test_draw_is_the_same_on_any_device(draw: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """A draw on the CPU in float32, cast and moved, has equal numbers on each device, and leaves the global stream alone.

    pytorch/pytorch#79496, huggingface/diffusers#1902. Guard `drawn_like`, 1.13 to 2.15.
    """
    before = torch.get_rng_state()
    drawn = draw(torch.empty(40, dtype=dtype, device=device), 7)
    assert torch.equal(torch.get_rng_state(), before)
    assert same_bits(drawn, torch.randn(40, generator=torch.Generator().manual_seed(7)).to(dtype))


def generator_of_the_cpu(device: torch.device, seed: int) -> torch.Generator:
    """Ignores both."""
    del device, seed
    return torch.Generator()


@values
@catches(generator_of_the_cpu, generator=generator_for)
def test_generator_is_of_the_device(generator: Callable[..., torch.Generator], device: torch.device) -> None:
    """A generator made for the device repeats under its seed, gives another stream under another, and draws there.

    pytorch/pytorch#84288 (MPS ignored the seed). Guard `generator_for`, 1.13 to 2.15.
    """
    first, again, other = (generator(device, seed) for seed in (1, 1, 2))
    draws = [torch.rand(8, generator=each, device=each.device) for each in (first, again, other)]
    torch.ones(1, device=device)
    assert same_bits(draws[0], draws[1])
    assert not same_bits(draws[0], draws[2])


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x.normal_(),
    "uniform": lambda x: x.uniform_(1.0, 2.0),
    "bernoulli": lambda x: x.bernoulli_(1.0),
    "exponential": lambda x: x.exponential_(),
    "random": lambda x: x.random_(1, 100),
    "cauchy": lambda x: x.cauchy_(),
    "log_normal": lambda x: x.log_normal_(),
}


def draw_in_place(x: Tensor, draw: str) -> None:
    """As torch has it."""
    DRAWS[draw](x)


def draws_into_a_copy(x: Tensor, draw: str) -> None:
    """What MPS did: the numbers go into a contiguous copy that nobody keeps."""
    DRAWS[draw](x.contiguous())


@values
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("layout", LAYOUTS)
@catches(draws_into_a_copy, fill=draw_in_place)
def test_in_place_draw_reaches_strided_tensors(fill: Callable[..., None], layout: str, draw: str, device: torch.device) -> None:
    """An in-place draw writes every element of a tensor of any strides.

    pytorch/pytorch#165257, pytorch/pytorch#124029: a no-op on MPS before macOS 15. On the CPU right on 1.13 to 2.15.
    """
    assert not LAYOUTS[layout](torch.zeros(4, 6)).is_contiguous()  # asked on the host: XLA calls all of its tensors so, pytorch/xla#8032
    x = LAYOUTS[layout](torch.zeros(4, 6, device=device))
    fill(x, draw)
    assert bool((x != 0).all())


def sample_natively(weights: Tensor, count: int) -> Tensor:
    """As torch has it."""
    return torch.multinomial(weights, count)


def samples_with_replacement(weights: Tensor, count: int) -> Tensor:
    """The same index again."""
    return torch.multinomial(weights, count, replacement=True)


def samples_uniformly(weights: Tensor, count: int) -> Tensor:
    """Weights of zero count too."""
    return torch.multinomial(torch.ones_like(weights), count)


@values
@dtypes("float32", "bfloat16")
@catches(samples_with_replacement, samples_uniformly, sample=sample_natively)
def test_sample_has_no_weightless_index(sample: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Sampling without replacement draws distinct indices, and none whose weight is zero.

    pytorch/pytorch#192577: on MPS an index of probability zero can come. On the CPU right on 1.13 to 2.15.
    """
    weights = torch.ones(500, 40, dtype=dtype, device=device)
    weights[:, ::2] = 0
    drawn = sample(weights, 10).cpu()
    assert bool((drawn % 2 == 1).all())
    assert all(len(set(row)) == 10 for row in drawn.tolist())
