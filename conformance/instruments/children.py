"""Processes that a case starts for a risky step: each with limits of its own for time and memory, and none that outlives its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from conformance.incell.deaths import ChildDeathError
from conformance.incell.verdicts import Verdict

#: A busy machine may give a process this share of a core.
PATIENCE = 10

#: The kernel ends a process by the ticks that it was charged, and tells afterwards what it ran: 0.93 to 0.99 of them on a busy machine.
_NEARLY = 0.75
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
#: Characters of what a child said that an error repeats.
_LAST_WORDS = 300


@dataclass(frozen=True)
class Limit:
    """What one step may take: seconds of its processor's time, so that a busy machine changes no verdict, and megabytes of address space.

    Memory is limited on Linux alone. What does not compute, and waits, is ended after PATIENCE times its seconds.
    """

    seconds: float
    megabytes: int


@dataclass(frozen=True)
class Ended:
    """A child that ended by itself: its exit code and what it wrote to both streams."""

    code: int
    out: str
    err: str


def run(command: Sequence[str], limit: Limit, what: str, variables: Mapping[str, str] | None = None) -> Ended:
    """Run `command` to its end, with `variables` beside those that are set.

    Raises ChildDeathError when it is late, or dies of a signal; `what` names the step in its message.
    """
    child = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, **(variables or {})},
        preexec_fn=_limiting(limit),
    )
    before = _processor_seconds()
    try:
        out, err = child.communicate(timeout=limit.seconds * PATIENCE)
    except subprocess.TimeoutExpired:
        raise ChildDeathError(Verdict.TIMEOUT, f"{what} did not end within {limit.seconds * PATIENCE:g} s") from None
    finally:
        _end(child)
    if child.returncode == -signal.SIGKILL and _processor_seconds() - before >= limit.seconds * _NEARLY:  # else somebody else killed it
        raise ChildDeathError(Verdict.TIMEOUT, f"{what} did not end within {limit.seconds:g} s of processor time")
    if child.returncode < 0 or child.returncode in (128 + signal.SIGABRT, 128 + signal.SIGSEGV):
        name = signal.Signals(-child.returncode if child.returncode < 0 else child.returncode - 128).name
        raise ChildDeathError(Verdict.CRASH, f"{what} died of {name}: {last_words(err)}".removesuffix(": "), name)
    return Ended(child.returncode, out, err)


def _processor_seconds() -> float:
    """What this process's ended children computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def last_words(err: str) -> str:
    """The line of a dead compiler's output that says something: what it asserted or ran out of, else the last one before its stack."""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    telling = (
        "Assertion",
        "LLVM ERROR",
        "terminate called",
        "what():",
        "ERROR:",
        "MLIRError",
        "free()",
        "malloc",
        "double free",
        "corrupt",
    )
    found = [line for line in lines if any(word in line for word in telling)]
    before = [line for line in lines if not line.startswith(("#", "PLEASE", "Stack dump", "0.", "1."))]
    return ((found or before or [""])[-1])[:_LAST_WORDS]


def _limiting(limit: Limit) -> Callable[[], None]:
    """What the child does before it becomes the command: die with its parent, keep to its memory, leave no core file."""
    size = limit.megabytes * 1_000_000

    def apply() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # both limits at once, so that the end is SIGKILL: LLVM's tools handle SIGXCPU, allocate in the handler, and may abort of that
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit.seconds), int(limit.seconds)))

    return apply


def _end(child: subprocess.Popen[str]) -> None:
    """The whole session: a compiler starts a linker of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
