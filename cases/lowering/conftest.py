"""What every case of this family takes: a journey that knows the case's stages, observations and artifacts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.instruments.lowering.journey import Journey


@pytest.fixture
def journey(stage: Callable[..., Any], observe: Callable[..., None], artifact: Callable[[str, str], str], tmp_path: Path) -> Journey:
    """Takes a model down, as `journey.take(luggage, route, backend)`."""
    return Journey(stage, observe, artifact, tmp_path)
