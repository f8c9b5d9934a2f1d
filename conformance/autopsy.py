"""From what a dead process left behind to the record of the case that it took along."""

from __future__ import annotations

import linecache
import re
import signal as signals
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from conformance.incell.output import TAIL
from conformance.incell.scrub import Scrubber
from conformance.incell.verdicts import Stage, Verdict
from conformance.journals import Process
from conformance.launch import End

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in ', re.MULTILINE)


def post_mortem(
    process: Process, code: int | None, ended: End | None, *, now: float, roots: tuple[Path, ...], scrub: Scrubber
) -> dict[str, Any]:
    """The fields that a record gets when the process died in its case: verdict, reason, signal, blame and the last words.

    `code` is the exit code as `subprocess` gives it, negative for a signal, None where nobody knows it; `ended` says why the
    process was ended from outside, if it was.
    """
    verdict, reason, signal = _cause(code, ended)
    importing = bool(process.open_file)
    where = f"while {process.open_file} was imported" if importing else f"in {process.phase}"
    where += f", at {process.stage} of {process.work}" if process.work else ""
    trace = _trimmed(process.trace)
    tail = "\n".join(part for part in (process.output.rstrip(), trace.rstrip()) if part)
    started = datetime.fromtimestamp(process.since, timezone.utc)
    return {
        "verdict": verdict.value,
        "stage": Stage.COLLECT.value if importing else process.stage,
        "reason": scrub.text(f"{reason}, {where}"),
        "signal": signal,
        "blame": _blame(trace, roots, scrub),
        "output_tail": scrub.text(tail)[-TAIL:],
        "started_at": started.isoformat(timespec="milliseconds"),
        "duration_s": round(max(0.0, now - process.since), 3),
    }


def _cause(code: int | None, ended: End | None) -> tuple[Verdict, str, str | None]:
    if ended is not None:
        verdict = Verdict(ended.verdict)
        return verdict, ended.reason, None if verdict is Verdict.TIMEOUT else "SIGKILL"
    if code is not None and code < 0:
        name = _signal_name(-code)
        return Verdict.CRASH, f"the process died of {name}", name
    told = "with an exit code that nobody saw" if code is None else f"with exit code {code}"
    return Verdict.CRASH, f"the process ended {told}", None


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _trimmed(trace: str) -> str:
    """The stacks without the threads and frames of the harness: below a case's own frames lie only pytest and execnet."""
    kept, skipping = [], False
    for line in trace.splitlines():
        if not line.startswith("  File "):
            skipping = False
        elif "/_pytest/python.py" in line or "/execnet/" in line:
            skipping = True
        if not skipping:
            kept.append(line)
    return re.sub(r"(?m)^(?:Current thread|Thread) \S+ (?:\[[^\]]*\] )?\(most recent call first\):\n(?=\n|\Z)", "", "\n".join(kept) + "\n")


def _blame(trace: str, roots: tuple[Path, ...], scrub: Scrubber) -> dict[str, Any] | None:
    """The innermost frame of the stacks that lies in a case, a subject or a helper of ours."""
    for match in _FRAME.finditer(trace):
        path = Path(match["file"]).resolve()
        if any(path.is_relative_to(root) for root in roots):
            line = int(match["line"])
            return {"file": scrub.text(str(path)), "line": line, "source": linecache.getline(str(path), line).strip()}
    return None
