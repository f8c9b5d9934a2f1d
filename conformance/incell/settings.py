"""What the supervisor tells a process in the cell: one JSON file, named by an environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Environment variable that holds the path of the settings file.
VARIABLE = "CONFORMANCE_SETTINGS"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this process is to run cases. Without a settings file (an author's bare pytest) the defaults hold."""

    cell: str = ""
    device: str = "cpu"
    #: Folder that takes this process's journal, output and traces; empty: no journal is kept.
    journal: str = ""
    #: Folder that takes what cases keep beside their records; empty: a temporary one.
    artifacts: str = ""
    #: File that takes what confounds verdicts here, read before anything is collected; empty: it is known.
    fingerprint: str = ""
    #: Whether processes leave the bytecode of what they import: the environment is the tool's own.
    leaves_bytecode: bool = False
    #: Name of the requirement set whose environment this process runs in.
    environment: str = "base"
    #: File with the case ids to run, one a line; empty: every case that belongs to `environment`.
    wanted: str = ""
    attempt: int = 1
    seed: int = 0
    timeout_s: float = 120.0
    depth: str = "default"
    twins: bool = False
    #: The user's subjects by alias, each with its `reference` and `requirements`. Where there are any, they are what cases are run on.
    subjects: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Folders that hold the subjects' code: at the end of the import path, and the first to be blamed.
    subject_roots: list[str] = field(default_factory=list)
    #: Roots of case folders; a file directly under `<root>/<family>/` belongs to that family.
    case_roots: list[str] = field(default_factory=list)
    #: Those of `case_roots` that hold the user's own files: their family is `user`.
    user_roots: list[str] = field(default_factory=list)
    #: Placeholder -> path; each path is written as its placeholder in records.
    roots: dict[str, str] = field(default_factory=dict)
    #: Texts that no record may hold (user, host, index names), beside what the process finds itself.
    secrets: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write the settings where a process in the cell will read them."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def load() -> Settings:
    """The settings that the supervisor wrote, or the defaults for a pytest run by hand (device from CONFORMANCE_DEVICE)."""
    path = os.environ.get(VARIABLE)
    if not path:
        return Settings(device=os.environ.get("CONFORMANCE_DEVICE", "cpu"), depth=os.environ.get("CONFORMANCE_DEPTH", "default"))
    return Settings(**json.loads(Path(path).read_text(encoding="utf-8")))
