"""The op at which numbers stop being numbers, and the line that called it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from conformance.instruments import callers


class FirstNan(TorchDispatchMode):
    """Inside, `op` becomes the first op that gives NaN of inputs that have none, and `line` its caller in the user's code."""

    def __init__(self) -> None:
        super().__init__()
        self.op = ""
        self.line: dict[str, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        looked = not self.op and not _have_nan((args, kwargs))
        result = func(*args, **kwargs)
        if looked and _have_nan(result):
            self.op, self.line = str(func._schema.name), callers.line()
        return result


def _have_nan(tree: Any) -> bool:
    floats = [each for each in tree_flatten(tree)[0] if isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex())]
    return any(bool(torch.isnan(each).any()) for each in floats if not each.is_meta and each.layout == torch.strided)
