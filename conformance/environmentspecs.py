"""What an environment is asked to hold, and one that is there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from conformance.incell.requirementsets import BASE

#: What the tool itself puts into a measured environment, and nothing else.
TOOLS = ("pytest>=9", "pytest-xdist>=3.8")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What an environment must hold. Equal requests share one environment, so a cpu cell and a meta cell do."""

    torch: str
    python: str
    #: uv's --torch-backend: cpu, auto, xpu; empty for PyPI's build.
    backend: str
    requirements: tuple[str, ...]
    name: str = BASE
    wheel: str = ""
    index_url: str = ""
    #: The exact build of the cell's base environment, which a requirement set must keep.
    held: str = ""
    tools: tuple[str, ...] = TOOLS

    @property
    def folder(self) -> str:
        """A folder name that tells people what it is, and requests apart."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"torch{self.torch}-py{self.python}-{self.name}-{digest}"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment that is there. `lock` lists every installed distribution, a line each."""

    request: Request
    path: Path
    lock: tuple[str, ...] = field(default=())
    #: Whether the tool made it, and may write there.
    own: bool = True

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    @property
    def torch_build(self) -> str:
        """torch's version with its local part, as the lock has it."""
        for line in self.lock:
            name, _, version = line.partition("==")
            if name == "torch":
                return version
        return self.request.torch
