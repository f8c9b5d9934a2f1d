"""Recipes of initialisation that run everywhere and mean something else than they say: bounds, fans, rows, ties, parametrizations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from conformance.incell import catches, host, values
from conformance.instruments.bits import same_bits

Write = Callable[[Tensor], object]
Init = Callable[[nn.Module], object]

_STD = 0.02


def truncate_at_two_deviations(weight: Tensor) -> None:
    """Bounds in units of the weights."""
    nn.init.trunc_normal_(weight, std=_STD, a=-2 * _STD, b=2 * _STD)


def truncates_at_plus_minus_two(weight: Tensor) -> None:
    """The default bounds, a hundred deviations away: nothing is cut."""
    nn.init.trunc_normal_(weight, std=_STD)


@values
@catches(truncates_at_plus_minus_two, write=truncate_at_two_deviations)
def test_truncation_is_in_units_of_the_weights(write: Write, device: torch.device) -> None:
    """A truncated normal of standard deviation 0.02 holds nothing beyond two deviations.

    huggingface/pytorch-image-models#1286, foundation-model-stack/foundation-model-stack#289: torch's bounds are absolute, not multiples
    of `std`. 1.13 to 2.15.
    """
    weight = torch.empty(100, 100, device=device)
    write(weight)
    assert float(weight.abs().max()) <= 2 * _STD * 1.001
    assert float(weight.std()) > 0.75 * _STD


def scale_by_rows(weight: Tensor) -> None:
    """The weight is stored as (in, out): its inputs are what torch calls fan_out."""
    nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="linear")


def scales_by_columns(weight: Tensor) -> None:
    """The default mode, made for weights stored as (out, in)."""
    nn.init.kaiming_normal_(weight, nonlinearity="linear")


@values
@catches(scales_by_columns, write=scale_by_rows)
def test_fan_follows_storage(write: Write, device: torch.device) -> None:
    """A weight stored as (in, out), as GPT-2's Conv1D does, has the deviation of its inputs.

    The documentation of torch.nn.init takes (out, in) for granted. 1.13 to 2.15.
    """
    inputs, outputs = 400, 25
    weight = torch.empty(inputs, outputs, device=device)
    write(weight)
    assert abs(float(weight.std()) * inputs**0.5 - 1.0) < 0.1


@torch.no_grad()
def write_and_clear_padding(table: nn.Embedding) -> None:
    """Draw all rows, then clear the row of the padding token again."""
    table.weight.normal_(std=_STD)
    if table.padding_idx is not None:
        table.weight[table.padding_idx].zero_()


@torch.no_grad()
def draws_padding_too(table: nn.Embedding) -> None:
    """Draw all rows."""
    table.weight.normal_(std=_STD)


@values
@catches(draws_padding_too, init=write_and_clear_padding)
def test_padding_row_stays_zero(init: Init, device: torch.device) -> None:
    """An initialisation of one's own leaves the row of the padding token at zero: its gradient never mends it.

    The documentation of `nn.Embedding(padding_idx=...)`. 1.13 to 2.15.
    """
    table = nn.Embedding(8, 4, padding_idx=1, device=device)
    init(table)
    table(torch.tensor([0, 1, 2], device=device)).sum().backward()
    assert table.weight.grad is not None
    assert table.weight[1].tolist() == [0.0] * 4
    assert float(table.weight.detach()[2].abs().sum()) > 0
    assert table.weight.grad[1].tolist() == [0.0] * 4


class Doubled(nn.Module):
    """A parametrization: the weight is twice what is stored."""

    def forward(self, stored: Tensor) -> Tensor:
        """The weight."""
        return 2 * stored

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What to store for a weight."""
        return weight / 2


@torch.no_grad()
def assign_the_weight(layer: nn.Linear) -> None:
    """Assignment goes through the parametrization's inverse."""
    layer.weight = torch.full_like(layer.weight, 3.0)


@torch.no_grad()
def fills_the_computed_weight(layer: nn.Linear) -> None:
    """In place, on a tensor that was computed for this line alone."""
    layer.weight.fill_(3.0)


@catches(fills_the_computed_weight, init=assign_the_weight)
@values
def test_parametrized_weight_is_written(init: Init, device: torch.device) -> None:
    """Initialising a parametrized weight reaches what is stored, and the next read sees it.

    Observed here: what `torch.nn.init` writes in place goes to a temporary. 1.13 to 2.15.
    """
    layer = nn.Linear(2, 2, device=device)
    parametrize.register_parametrization(layer, "weight", Doubled())
    init(layer)
    assert layer.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]


class Sharing(nn.Module):
    """Two blocks with one and the same projection, and a head."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([nn.Sequential(shared), nn.Sequential(shared)])
        self.head = nn.Linear(4, 4)


def _draw(part: nn.Module) -> None:
    if isinstance(part, nn.Linear):
        nn.init.normal_(part.weight, std=_STD)


def visit_once(module: nn.Module) -> None:
    """`modules()` names a shared module once."""
    for part in module.modules():
        _draw(part)


def applies(module: nn.Module) -> None:
    """`apply` comes to a shared module once for each parent, and draws again."""
    module.apply(_draw)


@host
@catches(applies, init=visit_once)
def test_shared_module_draws_once(init: Init) -> None:
    """A module that two parents share draws from the stream once, so what follows it has the numbers of one draw.

    Observed here: `nn.Module.apply` recurses through children without remembering whom it saw. 1.13 to 2.15.
    """
    module = Sharing()
    torch.manual_seed(3)
    init(module)
    torch.manual_seed(3)
    wanted = [torch.empty(4, 4).normal_(std=_STD) for _ in range(2)]
    assert same_bits(module.blocks[0][0].weight, wanted[0])
    assert same_bits(module.head.weight, wanted[1])


class Language(nn.Module):
    """An embedding, and a head that shares its matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 64)
        self.head = nn.Linear(64, 64, bias=False)
        self.head.weight = self.embedding.weight


def skip_what_is_tied(module: nn.Module) -> None:
    """Each parameter is written once, by the first module that has it."""
    seen: set[int] = set()
    for part, std in _parts(module):
        if id(part.weight) not in seen:
            seen.add(id(part.weight))
            nn.init.normal_(part.weight, std=std)


def writes_by_type(module: nn.Module) -> None:
    """Each module by its type: the head overwrites the embedding."""
    for part, std in _parts(module):
        nn.init.normal_(part.weight, std=std)


def _parts(module: nn.Module) -> list[tuple[nn.Module, float]]:
    by_type = {nn.Embedding: 1.0, nn.Linear: _STD}
    return [(part, by_type[type(part)]) for part in module.modules() if type(part) in by_type]


@values
@catches(writes_by_type, init=skip_what_is_tied)
def test_tied_weight_is_written_once(init: Init, device: torch.device) -> None:
    """An embedding tied to its head keeps the embedding's deviation.

    karpathy/nanoGPT ties its `wte` so. 1.13 to 2.15.
    """
    module = Language().to(device)
    init(module)
    assert abs(float(module.embedding.weight.std()) - 1.0) < 0.1
