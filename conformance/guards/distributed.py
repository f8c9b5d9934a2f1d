"""Where DTensor lives."""

from __future__ import annotations

import importlib
from typing import Any


def dtensor() -> type | None:
    """The class DTensor: of `torch.distributed.tensor` from 2.5, of `torch.distributed._tensor` before; None where there is none.

    `torch.distributed.tensor` is a package without it from 2.0 to 2.4, and an import may fail with more than ImportError.
    """
    for home in ("torch.distributed.tensor", "torch.distributed._tensor"):
        try:
            return getattr(importlib.import_module(home), "DTensor")  # noqa: B009  # absent on some releases
        except Exception:  # AttributeError, ImportError, or what the package itself runs into
            continue
    return None


def is_dtensor(value: Any) -> bool:
    """Whether `value` is a DTensor."""
    kind = dtensor()
    return kind is not None and isinstance(value, kind)
