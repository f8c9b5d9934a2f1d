"""The process that starts pytest-xdist's workers: it alone knows with which exit code each of them died."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from conformance.incell.journal import Journal


class Controller:
    """In the process that starts the workers: tells with which exit code each of them died."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker ended; its exit code is known to its parent only."""
        popen = getattr(getattr(node.gateway, "_io", None), "popen", None)
        if popen is None or not error:
            return
        try:
            code: int | None = popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = None
        self._journal.event("exit", pid=popen.pid, code=code)
