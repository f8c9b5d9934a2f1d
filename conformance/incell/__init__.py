"""What runs inside a measured environment: the standard library, pytest and torch, nothing else.

Cases import their decorators from here: `from conformance.incell import catches, requires`.
"""

from conformance.incell.marks import catches, deep, dtypes, host, limits, requires, subjects, uncounted, values

__all__ = ["catches", "deep", "dtypes", "host", "limits", "requires", "subjects", "uncounted", "values"]
