"""The public names of this torch and the keywords that they take, as a sorted JSON list: what a table of first releases is made of.

`python -m conformance.incell.publicnames OUT`
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

#: Where a model's author finds an API.
NAMESPACES = (
    "torch",
    "torch.Tensor",
    "torch.accelerator",
    "torch.amp",
    "torch.autograd",
    "torch.backends",
    "torch.backends.cpu",
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.backends.mps",
    "torch.compiler",
    "torch.cuda",
    "torch.distributed.tensor",
    "torch.export",
    "torch.fft",
    "torch.func",
    "torch.fx",
    "torch.jit",
    "torch.library",
    "torch.linalg",
    "torch.mps",
    "torch.nested",
    "torch.nn",
    "torch.nn.Module",
    "torch.nn.attention",
    "torch.nn.attention.bias",
    "torch.nn.attention.flex_attention",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.nn.utils.parametrizations",
    "torch.onnx",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.serialization",
    "torch.sparse",
    "torch.special",
    "torch.testing",
    "torch.utils",
    "torch.utils.checkpoint",
    "torch.utils.data",
    "torch.utils.flop_counter",
    "torch.xpu",
)
#: Stands for keywords that a signature does not tell.
OTHERS = "?"
_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def names() -> list[str]:
    """Every public name of the namespaces that this release has, and `name(keyword)` for what tells its keywords."""
    found = {name for namespace in NAMESPACES for name in _of(namespace)}
    return sorted(found)


def _of(namespace: str) -> Iterator[str]:
    owner = _found(namespace)
    if owner is None:
        return
    yield namespace
    for name in dir(owner):
        if not name.startswith("_"):
            value = getattr(owner, name, None)
            if not (isinstance(value, types.ModuleType) and not value.__name__.startswith("torch")):
                yield f"{namespace}.{name}"
                yield from (f"{namespace}.{name}({keyword})" for keyword in _keywords(value))


def _found(namespace: str) -> Any:
    try:
        return importlib.import_module(namespace)
    except Exception:  # absent here, a class, or a part that this build cannot load
        parent, _, name = namespace.rpartition(".")
        return getattr(sys.modules.get(parent), name, None)


def _keywords(value: Any) -> list[str]:
    """The keywords that a callable tells; `?` where it takes others, or does not tell them."""
    if not callable(value):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return [OTHERS]
    told = [each.name for each in parameters if each.kind in _PLAIN and not each.name.startswith("_") and each.name not in ("self", "cls")]
    return told + [OTHERS for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(names(), out)
