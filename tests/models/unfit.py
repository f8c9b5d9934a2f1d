"""What somebody could hand over by mistake."""

import os
import time

import torch
from torch import nn


def raises() -> nn.Module:
    raise ValueError("no such checkpoint")


def no_inputs() -> nn.Module:
    return nn.Linear(2, 2)


def no_module() -> int:
    return 3


def wants(width: int) -> nn.Module:
    return nn.Linear(width, width)


class TextAnswer(nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "done"


def text() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return TextAnswer(), (torch.ones(2, 2),)


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(1)


def unsteady() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Random(), (torch.ones(2, 2),)


def hangs() -> nn.Module:
    time.sleep(10_000)
    return nn.Linear(2, 2)


def dies() -> nn.Module:
    os._exit(3)
