"""Muon: which parameters it may have, and what its step is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conformance.guards import split_for_muon
from conformance.incell import Twin, catches, host, requires, values
from conformance.instruments.weights import uniform


class Small(nn.Module):
    """An embedding, a hidden layer, a norm, and a head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.hidden = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight


def gives_all_matrices(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """By dimension alone: embeddings are matrices too."""
    parameters = list(module.parameters())
    return [p for p in parameters if p.dim() == 2], [p for p in parameters if p.dim() != 2]


def counts_tied_twice(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Collected by layer: the tied matrix comes up again with the head."""
    linear = [part.weight for part in module.modules() if isinstance(part, nn.Linear)]
    return linear, [p for p in module.parameters() if all(p is not taken for taken in linear)]


@host
@catches(gives_all_matrices, counts_tied_twice, split=split_for_muon)
def test_parameters_for_muon(split: Callable[..., tuple[list[Tensor], list[Tensor]]]) -> None:
    """Muon gets the matrices of hidden layers; vectors, embeddings and heads tied to them go to the other optimizer, each once.

    torch documentation of Muon: for the 2-D parameters of hidden layers. 1.13 to 2.15.
    """
    module = Small()
    hidden, others = split(module)
    assert [id(p) for p in hidden] == [id(module.hidden.weight)]
    assert sorted(map(id, hidden + others)) == sorted(map(id, module.parameters()))


def muon_of_matrices(module: nn.Module) -> torch.optim.Optimizer:
    """The guard's first half."""
    found: torch.optim.Optimizer = torch.optim.Muon(split_for_muon(module)[0], lr=0.1)
    return found


def muon_of_everything(module: nn.Module) -> torch.optim.Optimizer:
    """All parameters, as any other optimizer takes them."""
    found: torch.optim.Optimizer = torch.optim.Muon(module.parameters(), lr=0.1)
    return found


@host
@requires("torch.optim.Muon")
@catches(Twin(muon_of_everything, "raises"), make=muon_of_matrices)
def test_muon_takes_matrices(make: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
    """Muon is made of matrices, and refuses a vector.

    torch documentation: since 2.9.
    """
    make(Small())
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([nn.Parameter(torch.ones(2))], lr=0.1)


def step_by_muon(weight: nn.Parameter) -> None:
    """One plain step of rate 1."""
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False).step()


def steps_by_gradient(weight: nn.Parameter) -> None:
    """A fallback that follows the gradient."""
    torch.optim.SGD([weight], lr=1.0).step()


@values
@requires("torch.optim.Muon")
@catches(steps_by_gradient, step=step_by_muon)
def test_muon_moves_in_all_directions(step: Callable[..., None], device: torch.device, observe: Callable[..., None]) -> None:
    """A step of Muon is nearly orthogonal: all its singular values lie between .5 and 1.3, whatever those of the gradient.

    torch documentation: since 2.9.
    """
    weight = nn.Parameter(torch.zeros(4, 8, device=device))
    weight.grad = (uniform((4, 8), "gradient") * torch.tensor([[10.0], [1.0], [0.5], [0.1]])).to(device)
    step(weight)
    sizes = torch.linalg.svdvals(weight.detach().cpu())
    observe("singular_values", sizes)
    assert 0.5 < float(sizes.min()) <= float(sizes.max()) < 1.3
