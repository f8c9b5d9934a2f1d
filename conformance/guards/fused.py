"""Fused optimizers where there is one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def fused_options(optimizer: type, parameters: Iterable[torch.Tensor]) -> dict[str, Any]:
    """`{"fused": True}` where `optimizer` has a fused step for these parameters, else `{}`: found by making one and stepping it.

    By keyword from 2.0 (CUDA), AdamW from 2.4 and SGD from 2.5 on the CPU too.
    """
    return {"fused": True} if steps_by(optimizer, parameters, "fused") else {}


def steps_by(optimizer: type, parameters: Iterable[torch.Tensor], way: str) -> bool:
    """Whether `optimizer(..., way=True)` steps parameters of these devices and dtypes, by a step of copies of one element.

    Whether it does shows in the constructor on some releases, and in the first step on others.
    """
    kinds = {(parameter.device, parameter.dtype) for parameter in parameters}
    probes = [torch.zeros(1, device=device, dtype=dtype, requires_grad=True) for device, dtype in kinds]
    for probe in probes:
        probe.grad = torch.zeros_like(probe)
    try:
        optimizer(probes, lr=0.1, **{way: True}).step()
    except (TypeError, RuntimeError, ValueError):
        return False
    return True
