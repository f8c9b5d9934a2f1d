"""Which parameters Muon may have."""

from __future__ import annotations

from torch import Tensor, nn


def split_for_muon(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters for Muon (matrices of hidden layers) and those for another optimizer: vectors, embeddings, and heads tied to them.

    `torch.optim.Muon` (2.9) raises for what is not 2-D, and takes an embedding in silence.
    """
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))}
    hidden = [p for p in module.parameters() if p.dim() == 2 and id(p) not in embeddings]
    taken = {id(p) for p in hidden}
    return hidden, [p for p in module.parameters() if id(p) not in taken]
