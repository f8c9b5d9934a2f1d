"""Installed distributions as requirements: what installs the same thing elsewhere."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

_CHECKOUT = Path(__file__).parent.parent


def requirement(found: importlib.metadata.Distribution) -> str:
    """The distribution as it is installed here: this version, or the place that it was installed from."""
    url = _direct(found).get("url")
    return f"{found.name} @ {url}" if url else f"{found.name}=={found.version}"


def itself() -> tuple[str, ...]:
    """What installs this tool, as arguments of pip: from where it was installed, in place if it was; else from its checkout."""
    try:
        found = importlib.metadata.distribution("torch-conformance")
    except importlib.metadata.PackageNotFoundError:
        return ("-e", str(_CHECKOUT))
    direct = _direct(found)
    if direct.get("dir_info", {}).get("editable"):
        return ("-e", unquote(urlparse(direct["url"]).path))
    return (requirement(found),)


def _direct(found: importlib.metadata.Distribution) -> dict[str, Any]:
    """Where it was installed from, if from no index (PEP 610)."""
    text = found.read_text("direct_url.json")
    direct: dict[str, Any] = json.loads(text) if text else {}
    return direct
