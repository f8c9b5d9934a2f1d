"""Models that are cast to another dtype: what must not be rounded on the way, or lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache, rotate
from conformance.incell import catches, dtypes, requires, values
from conformance.instruments import rotation
from conformance.instruments.weights import uniform

Cast = Callable[[nn.Module], nn.Module]
Observe = Callable[..., None]

#: Ways in which a model is cast; some come back to float32.
CASTS: dict[str, Cast] = {
    "bfloat16": lambda m: m.to(torch.bfloat16),
    "half": lambda m: m.half(),
    "bfloat16_then_float": lambda m: m.bfloat16().float(),
    "half_then_float": lambda m: m.half().float(),
}


class KeptFloat32(nn.Module):
    """Tables that stay in float32 whatever the model is cast to."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.rotary = RotaryCache(32, rows=8, device=device, keep_dtype=True)

    def cosines(self, rows: int) -> Tensor:
        """Cosines `(rows, 16)`."""
        return self.rotary(rows)[0]


class KeepsFrequencies(nn.Module):
    """Frequencies in a buffer, from which each forward pass computes in float32."""

    inv_freq: Tensor

    def __init__(self, device: Any) -> None:
        super().__init__()
        frequencies = 10000.0 ** (torch.arange(0, 32, 2, device=device).float() / -32)
        self.register_buffer("inv_freq", frequencies, persistent=False)

    def cosines(self, rows: int) -> Tensor:
        """Cosines `(rows, 16)`."""
        return (torch.arange(rows, device=self.inv_freq.device).float()[:, None] * self.inv_freq.float()).cos()


@values
@pytest.mark.parametrize("cast", CASTS)
@catches(KeepsFrequencies, build=KeptFloat32)
def test_cast_spoils_no_angle(build: Callable[[Any], Any], cast: str, device: torch.device, observe: Observe) -> None:
    """Casting a model leaves the cosines at 2048 positions within 1e-3: frequencies are no parameters, and are not rounded.

    huggingface/transformers#25681, EleutherAI/gpt-neox#1003, NVIDIA-NeMo/Automodel#2549: off by 0.36, and `.float()` later restores
    nothing. Holds on 1.13 to 2.15.
    """
    model = CASTS[cast](build(device))
    off = rotation.error(model.cosines(2048), rotation.angles(range(2048), 32).cos())
    observe("error", round(off, 5), better="lower")
    assert off < 1e-3


class KeepsTables(nn.Module):
    """Tables in plain buffers: a cast rounds them, and a cast back keeps what was rounded."""

    cos: Tensor

    def __init__(self, head_dim: int, rows: int, device: Any) -> None:
        super().__init__()
        self.register_buffer("cos", rotation.angles(range(rows), head_dim).cos().float().to(device), persistent=False)


#: Ways in which a table could be rounded twice.
CHAINS: dict[str, Cast] = {
    "half_then_bfloat16": lambda m: m.half().bfloat16(),
    "bfloat16_then_half": lambda m: m.bfloat16().half(),
    "bfloat16_then_float": CASTS["bfloat16_then_float"],
    "half_then_float": CASTS["half_then_float"],
}


@values
@pytest.mark.parametrize("chain", CHAINS)
@catches(KeepsTables, cache=RotaryCache)
def test_table_is_rounded_once(cache: Callable[..., Any], chain: str, device: torch.device) -> None:
    """A table that was cast holds float32 numbers rounded once to its last dtype: casting there and back restores it.

    huggingface/transformers#25681 (the guard computes anew after each cast). Holds on 1.13 to 2.15.
    """
    table = CHAINS[chain](cache(32, rows=1024, device=device)).cos
    once = max(torch.finfo(table.dtype).eps / 4, 1e-4)  # half a unit below 1
    assert rotation.error(table, rotation.angles(range(1024), 32).cos()) < once + 2e-5


def turn_and_round_once(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The result comes back in the dtype of the heads."""
    return rotate(x, cos, sin)


def promotes_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """float32 tables make float32 heads."""
    return rotate(x.float(), cos, sin)


def rounds_tables_to_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """float32 tables are rounded to the dtype of the heads before the product."""
    return rotate(x, cos.to(x.dtype), sin.to(x.dtype))


@values
@dtypes("bfloat16", "float16")
@catches(promotes_heads, rounds_tables_to_heads, turn=turn_and_round_once)
def test_heads_keep_their_dtype(turn: Callable[..., Tensor], device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    """Low-precision heads turned by float32 tables come back in their dtype, rounded once.

    huggingface/transformers#24203 (queries promoted beside values), KellerJordan/modded-nanogpt#39. Holds on 1.13 to 2.15.
    """
    x = uniform((1, 64, 4, 32)).to(device, dtype)
    got, right = turn(x, *RotaryCache(32, rows=64, device=device)(64)), rotation.turned(x, range(64))
    observe("error", rotation.error(got, right), better="lower")
    assert got.dtype == dtype
    assert rotation.error(got, right) <= torch.finfo(dtype).eps / 2 * 1.01


class KeepsComplexTable(nn.Module):
    """exp(-i angle) in a complex buffer, as Llama's first code has it."""

    table: Tensor

    def __init__(self, device: Any) -> None:
        super().__init__()
        angle = rotation.angles(range(16), 8).float()
        self.register_buffer("table", torch.polar(torch.ones_like(angle), -angle).to(device), persistent=False)

    def turn(self, x: Tensor) -> Tensor:
        """Heads `(B, 16, H, 8)`, interleaved."""
        product = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * self.table[:, None]
        return torch.view_as_real(product + 0j).flatten(-2)


class KeepsPair(nn.Module):
    """The same numbers as cosines and sines."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.rotary = RotaryCache(8, rows=16, device=device)

    def turn(self, x: Tensor) -> Tensor:
        """Heads `(B, 16, H, 8)`, interleaved."""
        return rotate(x, *self.rotary(16), interleaved=True)


def _turn_after(cast: Callable[[Any], Any], build: Callable[[Any], Any], device: torch.device) -> float:
    x = uniform((1, 16, 2, 8)).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Casting complex values to real discards the imaginary part", once in a process
        model = cast(build(device))
    return rotation.error(model.turn(x), rotation.turned(x, range(16), interleaved=True))


@values
@requires("complex64")
@dtypes("bfloat16", "float16", "float32")
@catches(KeepsComplexTable, build=KeepsPair)
def test_table_survives_to(build: Callable[[Any], Any], device: torch.device, dtype: torch.dtype, observe: Observe) -> None:
    """`model.to(dtype)` leaves a rotation a rotation: of a complex table it keeps the real part, with one warning a process.

    tenstorrent/tt-metal#27426. The cast to float32 loses it as well. Holds on 1.13 to 2.15.
    """
    off = _turn_after(lambda model: model.to(dtype), build, device)
    observe("error", round(off, 4), better="lower")
    assert off < 0.02


def cast_by_method(model: nn.Module) -> nn.Module:
    """`.half()`, which passes over complex buffers."""
    return model.half()


def casts_by_to(model: nn.Module) -> nn.Module:
    """`.to(float16)`, which does not."""
    return model.to(torch.float16)


@values
@requires("complex64")
@catches(casts_by_to, cast=cast_by_method)
def test_half_passes_over_complex_tables(cast: Cast, device: torch.device) -> None:
    """`model.half()` leaves a complex table whole, unlike `model.to(torch.float16)`.

    Observed here, 1.13 to 2.15.
    """
    assert _turn_after(cast, KeepsComplexTable, device) < 1e-5


def say_float32(device: torch.device) -> Tensor:
    """The dtype is said wherever a tensor is made."""
    return RotaryCache(32, rows=64, device=device).cos


def relies_on_default_dtype(device: torch.device) -> Tensor:
    """Whole numbers divided by a whole number: the default dtype, and with it everything after."""
    frequencies = 10000.0 ** (torch.arange(0, 32, 2, device=device) / -32)
    return (torch.arange(64, device=device)[:, None] * frequencies).float().cos()


@values
@catches(relies_on_default_dtype, make=say_float32)
def test_default_dtype_makes_no_table(make: Callable[[torch.device], Tensor], device: torch.device) -> None:
    """A model built while bfloat16 is the default dtype, as loaders do it, has float32 tables all the same.

    NVIDIA-NeMo/Automodel#2549, huggingface/transformers#25681. Holds on 1.13 to 2.15.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        table = make(device)
    finally:
        torch.set_default_dtype(default)
    assert rotation.error(table, rotation.angles(range(64), 32).cos()) < 1e-4
