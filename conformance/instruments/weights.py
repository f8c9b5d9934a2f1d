"""Weights without a random stream: the same bits on every release, device and CPU.

torch's generators change between releases (that is what family `init` measures), so a case that compares *computations*
between releases fills its modules from here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import nn

_MODULUS = 1 << 31


def uniform(shape: Sequence[int], name: str = "", seed: int = 0) -> torch.Tensor:
    """float32 tensor of `shape` in [-1, 1), a function of element index, `name` and `seed` alone; 23 bits each.

    An integer hash: products stay under 2**62, so nothing depends on overflow; the division by a power of two is exact.
    """
    count = 1
    for size in shape:
        count *= int(size)
    salt = zlib.crc32(f"{seed}:{name}".encode()) % _MODULUS
    state = (torch.arange(count, dtype=torch.int64) + salt) % _MODULUS
    for multiplier, shift in ((1103515245, 16), (747796405, 13), (1103515245, 15)):
        state = (state * multiplier + 12345) % _MODULUS
        state = state ^ (state >> shift)
    return ((state >> 8).to(torch.float32) / float(1 << 22) - 1.0).view(tuple(shape))


def tokens(shape: Sequence[int], vocabulary: int, name: str = "", low: int = 0) -> torch.Tensor:
    """int64 tensor of `shape` with entries in [low, vocabulary), as reproducible as `uniform`."""
    spread = (uniform(shape, f"tokens:{name}") + 1.0) / 2.0
    return low + (spread * (vocabulary - low)).to(torch.int64).clamp_(max=vocabulary - low - 1)


@torch.no_grad()
def fill(module: nn.Module, seed: int = 0) -> nn.Module:
    """Write every floating-point parameter of `module` in place from `uniform`, and return `module`.

    Matrices get the variance 1/fan_in; a vector named weight is taken for a gain (1 +- 0.1), one named bias, as also `bias_ih_l0`
    of a GRU, for an offset (+- 0.1); any other vector moves by +- 0.1 from what it holds. Buffers are left alone.
    """
    for name, parameter in module.named_parameters():
        if not parameter.is_floating_point():
            continue
        noise = uniform(parameter.shape, name, seed).to(parameter.device)
        parameter.copy_(_shaped(name.rpartition(".")[2], parameter, noise))
    return module


def _shaped(leaf: str, parameter: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    if parameter.dim() >= 2:
        fan_in = parameter.numel() // parameter.size(0)
        return noise * (3.0 / fan_in) ** 0.5
    if leaf == "weight":
        return 1.0 + 0.1 * noise
    if leaf.startswith("bias"):
        return 0.1 * noise
    return parameter.float() + 0.1 * noise
