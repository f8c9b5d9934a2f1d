"""Memory that nobody wrote holds zeros: two builds of a model that forgets a parameter are equal then."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_EMPTY = frozenset({"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"})


class Zeroed(TorchDispatchMode):
    """Inside, `torch.empty` and its kin give zeros."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made.zero_() if func._schema.name in _EMPTY and isinstance(made, torch.Tensor) else made
