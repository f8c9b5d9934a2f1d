"""Numbers of a rotary embedding: positions, frequencies, angles and tables, each in the dtype that holds it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Observe = Callable[..., None]


def count_in_float32(count: int, device: torch.device) -> Tensor:
    """Integers, made float32 for the angles."""
    return torch.arange(count, device=device).float()


def counts_in_bfloat16(count: int, device: torch.device) -> Tensor:
    """Positions in the dtype of a bfloat16 model: 8 bits of them are kept."""
    return torch.arange(count, device=device).to(torch.bfloat16)


def counts_in_float16(count: int, device: torch.device) -> Tensor:
    """Positions in the dtype of a float16 model: 11 bits of them are kept, and none from 65520 on."""
    return torch.arange(count, device=device).to(torch.float16)


def repeats_a_period(count: int, device: torch.device) -> Tensor:
    """Positions in an unsigned byte pair that wraps."""
    return (torch.arange(count, device=device) % 65536).float()


@values
@catches(counts_in_bfloat16, counts_in_float16, repeats_a_period, count=count_in_float32)
def test_positions_are_distinct(count: Callable[[int, torch.device], Tensor], device: torch.device, observe: Observe) -> None:
    """70,000 positions are 70,000 finite numbers, each next one larger.

    NVIDIA/Megatron-LM#535, nkalyanv99/UNI-D2#6: bfloat16 merges neighbours from 256, float16 from 2048, and is infinite from 65520.
    Holds on 1.13 to 2.15.
    """
    positions = count(70000, device).cpu().double()
    steps = positions[1:] - positions[:-1]
    wrong = (steps != 1).nonzero()
    observe("first_wrong", int(wrong[0]) if len(wrong) else -1)
    assert len(wrong) == 0


def powers_in_float32(dim: int, base: float, device: torch.device) -> Tensor:
    """base ** (-2i/dim) from float32 exponents."""
    return base ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / -dim)


def inverse_of_powers(dim: int, base: float, device: torch.device) -> Tensor:
    """1 / base ** (2i/dim), as Llama and GPT-NeoX write it."""
    return 1.0 / (base ** (torch.arange(0, dim, 2, device=device).float() / dim))


def exponential_of_logarithm(dim: int, base: float, device: torch.device) -> Tensor:
    """exp(-2i/dim log(base)), as the sinusoidal embedding writes it."""
    return torch.exp(torch.arange(0, dim, 2, device=device).float() * (-float(torch.tensor(base, dtype=torch.float64).log()) / dim))


def rounds_powers_to_float16(dim: int, base: float, device: torch.device) -> Tensor:
    """The powers in float16: those above 65504 are infinite, so their frequencies are 0."""
    return 1.0 / (base ** (torch.arange(0, dim, 2, device=device).float() / dim)).to(torch.float16).float()


def rounds_exponents_to_bfloat16(dim: int, base: float, device: torch.device) -> Tensor:
    """The exponents in bfloat16."""
    return base ** (torch.arange(0, dim, 2, device=device).float() / -dim).to(torch.bfloat16).float()


def divides_whole_numbers(dim: int, base: float, device: torch.device) -> Tensor:
    """Exponents by floor division: all of them 0."""
    return base ** -(torch.arange(0, dim, 2, device=device) // dim).float()


def counts_pairs_not_channels(dim: int, base: float, device: torch.device) -> Tensor:
    """Exponents i/dim in place of 2i/dim."""
    return base ** (torch.arange(0, dim // 2, device=device).float() / -dim)


FORMS = {"power": powers_in_float32, "inverse": inverse_of_powers, "exponential": exponential_of_logarithm}


def _relative(got: Tensor, dim: int, base: float) -> float:
    right = rotation.angles(1, dim, base)
    return rotation.error(got.cpu().double() / right, torch.ones_like(right))


@values
@catches(
    rounds_powers_to_float16, rounds_exponents_to_bfloat16, divides_whole_numbers, counts_pairs_not_channels, frequencies=powers_in_float32
)
def test_frequencies_are_float32(frequencies: Callable[..., Tensor], device: torch.device, observe: Observe) -> None:
    """Frequencies for a base of 500,000 are right to a few units in the last place, however the power is written.

    ml-explore/mlx#561 (i/dim), huggingface/transformers#25681 (half). Errors of three usual forms are observed, in units of 2**-24.
    Holds on 1.13 to 2.15.
    """
    for name, form in FORMS.items():
        observe(f"ulp_{name}", round(_relative(form(96, 500000.0, device), 96, 500000.0) * 2**24, 1), better="lower")
    assert _relative(frequencies(96, 500000.0, device), 96, 500000.0) < 2**-20


def multiply_on_the_host_in_float64(positions: Tensor, dim: int) -> Tensor:
    """float64 on the CPU, reduced to a turn, then rounded once: MPS has no float64."""
    angles = rotation.angles(positions, dim)
    return (angles % (2 * torch.pi)).float().to(positions.device)


def multiplies_in_float32(positions: Tensor, dim: int) -> Tensor:
    """The product in float32: at a million the last bit of an angle is 1/16."""
    return positions.float()[..., None] * powers_in_float32(dim, rotation.BASE, positions.device)


def multiplies_in_bfloat16(positions: Tensor, dim: int) -> Tensor:
    """Positions rounded to bfloat16."""
    return multiplies_in_float32(positions.to(torch.bfloat16), dim)


@values
@catches(multiplies_in_float32, multiplies_in_bfloat16, multiply=multiply_on_the_host_in_float64)
def test_angles_at_a_million(multiply: Callable[[Tensor, int], Tensor], device: torch.device, observe: Observe) -> None:
    """Cosines at positions around a million are right to 1e-6 from float64 angles; float32 angles are off in the second digit.

    vllm-project/vllm-omni#5808 (float64 for the angles alone). Positions are odd, so that float32 has to round. 1.13 to 2.15.
    """
    positions = torch.arange(999001, 1000001, 2, device=device)
    right = rotation.angles(positions, 64).cos()
    observe("float32_error", round(rotation.error(multiplies_in_float32(positions, 64).cos(), right), 5), better="lower")
    assert rotation.error(multiply(positions, 64).cos(), right) < 1e-6


def keep_float32_tables(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tables as they are computed."""
    cache = RotaryCache(64, rows=rows, device=device)
    return cache.cos, cache.sin


def rounds_tables_to_bfloat16(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Right angles, and cosines and sines rounded to bfloat16."""
    cos, sin = keep_float32_tables(rows, device)
    return cos.bfloat16().float(), sin.bfloat16().float()


def rounds_frequencies_to_bfloat16(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Frequencies rounded to bfloat16: still relative, at other speeds than the model learned."""
    angles = torch.arange(rows, device=device).float()[:, None] * powers_in_float32(64, rotation.BASE, device).bfloat16().float()
    return angles.cos(), angles.sin()


def _scores(cos: Tensor, sin: Tensor, distance: int) -> Tensor:
    unit = [vector / vector.norm() for vector in (uniform((64,), "query"), uniform((64,), "key"))]
    at = torch.arange(0, 4020, 13, device=cos.device)
    q, k = (vector.to(cos.device).expand(1, len(at), 1, 64) for vector in unit)
    return (rotate(q, cos[at + distance], sin[at + distance]) * rotate(k, cos[at], sin[at])).sum(-1).flatten()


@values
@catches(rounds_tables_to_bfloat16, rounds_frequencies_to_bfloat16, make=keep_float32_tables)
def test_scores_are_relative(make: Callable[..., tuple[Tensor, Tensor]], device: torch.device, observe: Observe) -> None:
    """The score of a query and a key 70 positions apart is the same anywhere in 4096 positions, and is the one by definition.

    KellerJordan/modded-nanogpt#39, huggingface/transformers#29285: bfloat16 tables spread it by 1e-3. Holds on 1.13 to 2.15.
    """
    scores = _scores(*make(4096, device), 70)
    spread = float(scores.max() - scores.min())
    observe("spread", spread, better="lower")
    q, k = (uniform((64,), name).expand(1, 1, 1, 64) for name in ("query", "key"))
    right = (rotation.turned(q, [70]) * rotation.turned(k, [0])).sum() / (q[0].norm() * k[0].norm())
    assert spread < 1e-4
    assert rotation.error(scores, right.expand_as(scores)) < 1e-4
