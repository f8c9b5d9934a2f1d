"""The indexes that torch comes from: PyTorch's, where it answers and has the build, else PyPI."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from conformance.config import Config
from conformance.environmentspecs import Request
from conformance.plan import PlannedCell

_PYTORCH = "https://download.pytorch.org/whl"


class Indexes:
    """Which index each build comes from, and what one run learned about them."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._known: dict[str, bool] = {}

    def backend(self, planned: PlannedCell) -> str:
        """Which of PyTorch's indexes the cell's build comes from; empty: PyPI."""
        device = planned.cell.device
        own_source = planned.release.wheel or planned.release.index_url
        if self._config.index == "pypi" or own_source or device == "xla" or planned.cell.platform.startswith("macos"):
            return ""
        backend = {"cuda": "auto", "xpu": "xpu"}.get(device, "cpu")
        return backend if self._config.index == "pytorch" or self._answers() else ""

    def _answers(self) -> bool:
        """Whether PyTorch's index can be reached; asked once a run, and said in one line when it cannot."""
        url = self._config.pytorch_index_url
        if url not in self._known:
            self._known[url] = _reachable(f"{url.rstrip('/')}/cpu/torch/")
            if not self._known[url]:
                self._say("PyTorch's package index cannot be reached: taking PyPI's builds (on Linux CUDA builds, about 5 GB a release)")
        return self._known[url]

    def arguments(self, request: Request) -> list[str]:
        """What tells uv where that request's torch comes from."""
        found = []
        if request.backend and self._config.pytorch_index_url == _PYTORCH:
            found += ["--torch-backend", request.backend]
        elif request.backend:
            found += ["--index", f"{self._config.pytorch_index_url.rstrip('/')}/{request.backend}"]
        if request.index_url:
            found += ["--index", request.index_url, "--prerelease", "allow"]
        return found


def _reachable(url: str) -> bool:
    if url.startswith("file:"):
        return Path(url.removeprefix("file://")).exists()
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False
