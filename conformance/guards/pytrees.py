"""Containers of one's own that torch's transforms look into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils._pytree as pytree


def register_pytree(kind: type, flatten: Callable[[Any], tuple[list[Any], Any]], unflatten: Callable[[Any, Any], Any]) -> None:
    """Register `kind` with `flatten(value) -> (children, context)` and `unflatten(children, context) -> value`; a second time does nothing.

    The public name came in 2.2; the private one before it warns from then on, and a second registration raises.
    """
    if kind in pytree.SUPPORTED_NODES:
        return
    register = getattr(pytree, "register_pytree_node", None) or pytree._register_pytree_node
    register(kind, flatten, unflatten)
