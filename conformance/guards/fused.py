"""Fused optimizers where there is one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def fused_options(optimizer: type, parameters: Iterable[torch.Tensor]) -> dict[str, Any]:
    """`{"fused": True}` where `optimizer` has a fused step for these parameters, else `{}`: found by making one and stepping it.

    By keyword from 2.0 (CUDA) and 2.4 (CPU); whether the device has one shows in the constructor on some releases, and in the
    first step on others. Only copies of one element are touched.
    """
    kinds = {(parameter.device, parameter.dtype) for parameter in parameters}
    if not kinds:
        return {}
    probes = [torch.zeros(1, device=device, dtype=dtype, requires_grad=True) for device, dtype in kinds]
    for probe in probes:
        probe.grad = torch.zeros_like(probe)
    try:
        optimizer(probes, lr=0.1, fused=True).step()
    except (TypeError, RuntimeError):
        return {}
    return {"fused": True}
