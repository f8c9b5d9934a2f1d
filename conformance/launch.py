"""One launch of processes in a cell: started in a session of their own, watched from outside, ended as a group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from conformance.incell.settings import VARIABLE
from conformance.journals import Journals, Process

#: Seconds between two looks at the processes.
_POLL_S = 0.1
#: Seconds that a process which is late gets to write down its stacks.
_LAST_WORDS_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits that are kept from outside."""

    memory_mb: int
    output_mb: int
    #: Without any line in a journal for that long, and no case running, the launch is ended.
    silence_s: float
    #: Case id -> megabytes, for cases with a limit of their own.
    case_memory_mb: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """Why a process was ended from outside, and the case that it was running when that was decided."""

    verdict: str
    reason: str
    case: str


@dataclass
class Ending:
    """How a launch ended."""

    code: int
    #: Process id -> why it was ended from outside.
    ended: dict[int, End] = field(default_factory=dict)
    pid: int = 0


def launch(
    command: Sequence[str],
    *,
    folder: Path,
    variables: Mapping[str, str],
    bounds: Bounds,
    journals: Journals,
    tick: Callable[[Journals], None],
) -> Ending:
    """Run `command`, in its TMPDIR, until it ends or must be ended.

    Its console goes to `folder/console.txt`; `tick` is called at every look.
    """
    with (folder / "console.txt").open("ab") as console:
        child = subprocess.Popen(
            list(command),
            cwd=variables["TMPDIR"],
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    watch = _Watch(child.pid, bounds, journals, folder)
    try:
        while child.poll() is None:
            watch.look()
            tick(journals)
            time.sleep(_POLL_S)
    finally:
        _end_all(child, variables)
    journals.update()
    return Ending(code=child.returncode, ended=watch.ended, pid=child.pid)


def _end_all(child: subprocess.Popen[bytes], variables: Mapping[str, str]) -> None:
    """Nothing that the launch started outlives it, nor what left its group: that still carries the launch's settings."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real == os.getuid() and process.environ().get(VARIABLE) == variables[VARIABLE]:
                process.kill()


class _Watch:
    """Looks at a launch's processes, and ends those that exceed a bound."""

    def __init__(self, pid: int, bounds: Bounds, journals: Journals, folder: Path) -> None:
        self._pid = pid
        self._bounds = bounds
        self._journals = journals
        self._folder = folder
        self._news_at = time.monotonic()
        self.ended: dict[int, End] = {}

    def look(self) -> None:
        """One look at memory, output, and time."""
        if self._journals.update():
            self._news_at = time.monotonic()
        by_pid = {process.pid: process for process in self._journals.processes.values()}
        for pid, resident_mb in _resident(self._pid):
            self._check_memory(pid, resident_mb, by_pid.get(pid))
        for process in by_pid.values():
            self._check_output(process)
            self._check_time(process)
        if time.monotonic() - self._news_at > self._silence() and self._pid not in self.ended:
            self._end(self._pid, "timeout", f"nothing happened for {self._silence():.0f} s", group=True)

    def _silence(self) -> float:
        """A running case may be silent for its own limit; between cases the configured silence holds."""
        running = [process.timeout_s + self._bounds.silence_s for process in self._journals.culprits()]
        return max([self._bounds.silence_s, *running])

    def _check_memory(self, pid: int, resident_mb: float, process: Process | None) -> None:
        case = process.open_case if process is not None else ""
        limit = self._bounds.case_memory_mb.get(case, self._bounds.memory_mb)
        if resident_mb > limit:
            self._end(pid, "crash", f"memory: {resident_mb:.0f} MB resident, the limit is {limit} MB")

    def _check_output(self, process: Process) -> None:
        with contextlib.suppress(OSError):
            size_mb = process.stem.with_suffix(".output").stat().st_size / 1e6
            if size_mb > self._bounds.output_mb:
                self._end(process.pid, "crash", f"output: {size_mb:.0f} MB printed, the limit is {self._bounds.output_mb} MB")
                os.truncate(process.stem.with_suffix(".output"), 16_000)

    def _check_time(self, process: Process) -> None:
        """A late process is told to leave its stacks and end; one that does not is ended."""
        late_s = time.time() - process.since - process.timeout_s
        if process.open_case and late_s > 0:
            number = signal.SIGUSR1 if late_s < _LAST_WORDS_S else signal.SIGKILL
            self._end(process.pid, "timeout", f"did not end within {process.timeout_s:g} s", number)

    def _end(self, pid: int, verdict: str, reason: str, number: signal.Signals = signal.SIGKILL, *, group: bool = False) -> None:
        running = [process.open_case for process in self._journals.processes.values() if process.pid == pid]
        self.ended.setdefault(pid, End(verdict, reason, running[0] if running else ""))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self._pid, number)
            else:
                os.kill(pid, number)


def _resident(root: int) -> list[tuple[int, float]]:
    """(process id, resident megabytes) of a process and all below it."""
    found = []
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(root)
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                found.append((process.pid, process.memory_info().rss / 1e6))
    return found
