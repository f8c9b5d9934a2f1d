"""What runs inside a measured environment: the standard library, pytest and torch, nothing else.

Cases import their decorators from here: `from conformance.incell import catches, requires`. They are loaded when asked for,
since what reads records outside a cell has no pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.incell.marks import Twin, catches, deep, dtypes, host, limits, requires, subjects, uncounted, values

__all__ = ["Twin", "catches", "deep", "dtypes", "host", "limits", "requires", "subjects", "uncounted", "values"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from conformance.incell import marks

    return getattr(marks, name)
