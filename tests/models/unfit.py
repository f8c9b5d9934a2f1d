"""What somebody could hand over by mistake."""

import os
import random
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


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


class Dropping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, 0.5)


def drops() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Dropping(), (torch.ones(2, 8),)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x * self.step


def counts() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Counting(), (torch.ones(2, 8),)


class Scaling(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.mul_(2)


def scales() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Scaling(), (torch.ones(2, 8), torch.ones(2, 8))


class Shuffling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * random.random()


def shuffles() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Shuffling(), (torch.ones(2, 8),)


def hangs() -> nn.Module:
    time.sleep(10_000)
    return nn.Linear(2, 2)


def dies() -> nn.Module:
    os._exit(3)


def needs_a_gpu() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return nn.Linear(2, 2).cuda(), (torch.ones(2, 2, device="cuda"),)


class Talking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            os.write(1, b"all work and no play\n" * 50_000)
        return x + 1


def talks() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Talking(), (torch.ones(2, 2),)


class Littering(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Path("left_behind.txt").write_text("weights")
        return x + 1


def litters() -> "tuple[nn.Module, tuple[torch.Tensor, ...]]":
    return Littering(), (torch.ones(2, 2),)
