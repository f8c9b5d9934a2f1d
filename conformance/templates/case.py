"""What the cases of this file ask, in one sentence."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conformance.incell import catches, values

# Replace the pair: first what is right, as a user would write it, then the mistake that this case exists to catch.


def adds_beside(x: Tensor) -> Tensor:
    """The right idiom: a new tensor."""
    return x + 1


def adds_in_place(x: Tensor) -> Tensor:
    """The wrong twin: it writes over what it was given."""
    return x.add_(1)


@values
@catches(adds_in_place, add=adds_beside)
def test_name_of_case(add: Callable[[Tensor], Tensor], device: torch.device, observe: Callable[..., None]) -> None:
    """An addition leaves its input as it was.

    owner/repository#1 says where that is known from. Holds on 1.13 to 2.15.
    """
    x = torch.arange(4.0, device=device)
    before = x.clone()
    added = add(x)
    observe("sum", added.sum().item())
    assert torch.equal(x, before)
