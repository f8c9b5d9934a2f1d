"""torch.compile under one set of names: the recompile limit, no silent recompilation, and the module inside the wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

_PREFIX = "_orig_mod."

_Code = TypeVar("_Code", bound=Callable[..., Any])


@contextmanager
def recompile_limit(limit: int) -> Iterator[None]:
    """Inside, a frame is compiled at most `limit` times before it runs in eager code.

    The setting is `cache_size_limit` until 2.6 (64 by default on 2.0 and 2.1, then 8) and `recompile_limit` since 2.7. From 2.4
    a second limit counts all frames of one code object (256); it is raised where it would come first.
    """
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    asked = {name: limit}
    total = f"accumulated_{name}"
    if hasattr(config, total):
        asked[total] = max(limit, getattr(config, total))
    with config.patch(asked):
        yield


@contextmanager
def no_recompiles() -> Iterator[None]:
    """Inside, a call that would compile a frame again raises RuntimeError: recompiling is silent, and past the limit so is eager code.

    `torch.compiler.set_stance("fail_on_recompile")` from 2.6, which refuses first compilations too; before, dynamo's
    `error_on_recompile` (2.1 to 2.5). Raises NotImplementedError on 2.0, which has neither.
    """
    set_stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if set_stance is not None:
        with set_stance("fail_on_recompile"):
            yield
        return
    from torch._dynamo import config

    if not hasattr(config, "error_on_recompile"):
        raise NotImplementedError("this torch can neither refuse to recompile nor be told to")
    with config.patch(error_on_recompile=True):
        yield


def not_compiled(code: _Code) -> _Code:
    """`code` as a region that runs in eager code, graph break and all: torch.compiler.disable from 2.1, dynamo's own before."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    if disable is None:
        from torch._dynamo import disable
    disabled: _Code = disable(code)
    return disabled


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that torch.compile wrapped, or `module` itself: what to save, pickle, copy or take attributes of."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


def without_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state`, a state dict of modules that were compiled or hold compiled ones, under the names of the plain model."""
    return {name.replace(_PREFIX, ""): tensor for name, tensor in state.items()}
