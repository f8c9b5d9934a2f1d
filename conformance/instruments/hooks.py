"""torch's hooks on all modules of the process: what an export or a case leaves there changes the cases after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.modules import module as modules

_NAMES = ("_global_buffer_registration_hooks", "_global_module_registration_hooks", "_global_parameter_registration_hooks")


def _registries() -> dict[str, Any]:
    """Name -> ordered table of hooks by id, for those that this release has (2.0 and later)."""
    return {name: getattr(modules, name) for name in _NAMES if hasattr(modules, name)}


def hooks() -> dict[str, list[int]]:
    """Ids of the hooks that there are, by registry."""
    return {name: list(registry) for name, registry in _registries().items()}


@contextmanager
def global_hooks_kept() -> Iterator[dict[str, list[int]]]:
    """Yields `hooks()`, and takes off what was registered inside and left there."""
    before = hooks()
    try:
        yield before
    finally:
        for name, registry in _registries().items():
            for key in [key for key in registry if key not in before[name]]:
                del registry[key]
