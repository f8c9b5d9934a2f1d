"""A real Chromium for the tests of pages: Playwright's own where it has one, else the system's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips the test, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: it is in the dependency group `tests`")
    with playwright.sync_playwright() as started:
        own = Path(started.chromium.executable_path)
        path = str(own) if own.is_file() else next((found for name in NAMES if (found := shutil.which(name))), None)
        if path is None:
            pytest.skip(f"no Chromium is installed: none of Playwright's, and no {', '.join(NAMES)} on PATH")
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
