"""A pytest plugin for benchmarks/sweep.py: how many results were held against others, written to the file that COMPARISONS names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import testing

_COUNTED: list[str] = []


def _counting(function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        _COUNTED.append(function.__name__)
        return function(*args, **kwargs)

    return counted


def pytest_collection_finish() -> None:
    testing.assert_close = _counting(testing.assert_close)
    sweep: Any = sys.modules.get("conformance.instruments.opsweep")
    if sweep is not None:
        sweep.form_off = _counting(sweep.form_off)


def pytest_sessionfinish() -> None:
    Path(os.environ["COMPARISONS"]).write_text(str(len(_COUNTED)), encoding="utf-8")
