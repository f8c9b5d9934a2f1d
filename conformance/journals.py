"""Reading the journals of one launch, while it runs and after it ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Process:
    """What one process of a launch has said so far."""

    pid: int
    stem: Path
    #: The case that has begun and not ended, and since when (seconds since the epoch).
    open_case: str = ""
    since: float = 0.0
    timeout_s: float = 0.0
    phase: str = "setup"
    #: The stage that the case said it was at, and what it worked on there.
    stage: str = "run"
    work: str = ""
    #: The file that is being imported, by its case id.
    open_file: str = ""

    @property
    def output(self) -> str:
        """What it printed since its last case began."""
        return _tail(self.stem.with_suffix(".output"))

    @property
    def trace(self) -> str:
        """The stacks that a crash, or being late, left."""
        return _tail(self.stem.with_suffix(".trace"), 40_000)


@dataclass
class Journals:
    """All journals in a launch's folder. `update` reads what is new since the last time."""

    folder: Path
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    cases: list[dict[str, Any]] = field(default_factory=list)
    #: Cases that exist and are not planned here: deep ones, those of the host on another device.
    left_out: list[str] = field(default_factory=list)
    #: Whether a collecting process has told all that it found.
    complete: bool = False
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    exits: dict[int, int | None] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    started: int = 0
    _offsets: dict[str, int] = field(default_factory=dict)

    def update(self) -> bool:
        """Read the new lines of every journal; returns whether there were any."""
        news = False
        for path in sorted(self.folder.glob("*.jsonl")):
            for event in self._new_events(path):
                news = True
                with contextlib.suppress(KeyError, TypeError):  # a line that no process of ours wrote whole says nothing
                    self._take(path, event)
        return news

    def _new_events(self, path: Path) -> Iterator[dict[str, Any]]:
        """Whole lines only: the last one may still be on its way, or was cut when its process died."""
        with path.open("rb") as file:
            file.seek(self._offsets.get(path.name, 0))
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offsets[path.name] = self._offsets.get(path.name, 0) + whole
        for line in data[:whole].splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # damaged by a full disk or a dying process: the case has no `end` and is run again
            if isinstance(event, dict):
                yield event

    def _take(self, path: Path, event: dict[str, Any]) -> None:
        process = self.processes.setdefault(path.name, Process(pid=_pid(path), stem=path.with_suffix("")))
        kind = event.get("event")
        if kind == "start":
            self.started += 1
            process.open_case, process.phase = event["case"], "setup"
            process.stage, process.work = "run", ""
            process.since, process.timeout_s = event["at"], event["timeout_s"]
        elif kind == "phase":
            process.phase = event["phase"]
        elif kind == "stage":
            process.stage, process.work = event["stage"], event["work"]
        elif kind == "end":
            process.open_case = ""
            self.records[event["record"]["case"]] = event["record"]
        elif kind == "file":
            process.open_file = event["case"]
        elif kind == "file-end":
            process.open_file = process.open_case = ""
            self.files[event["case"]] = event
        elif kind == "case":
            self.cases.append({key: value for key, value in event.items() if key != "event"})
        elif kind == "left-out":
            self.left_out = list(event["cases"])
        elif kind == "collected":
            self.complete = True
        elif kind == "exit":
            self.exits[event["pid"]] = event["code"]

    def culprits(self) -> list[Process]:
        """Processes whose last case, or file under import, never ended."""
        return [process for process in self.processes.values() if process.open_case]


def _pid(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else 0


def _tail(path: Path, size: int = 16_000) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
