"""From what pytest saw to a verdict: the rules of who is to blame for an exception."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pytest

from conformance.incell.deaths import ChildDeathError
from conformance.incell.observations import ObservationError
from conformance.incell.output import TAIL
from conformance.incell.verdicts import Verdict

_PACKAGE = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SUBJECTS = os.path.join(_PACKAGE, "subjects") + os.sep
_IN_CELL = os.path.join(_PACKAGE, "incell") + os.sep
#: Packages whose assertions speak for the case: what they compare is what the case claims.
_ASSERTING = tuple(os.sep + os.path.join(*parts) for parts in (("torch", "testing"), ("numpy", "testing"), ("unittest",), ("_pytest",)))


class StandInError(Exception):
    """Stands for an exception that must not leave a case as it is; what is judged is the original."""

    def __init__(self, original: BaseException) -> None:
        super().__init__(repr(original))
        self.original = original


class SessionEndError(StandInError):
    """Stands for an exception by which a case would end the whole session: the interrupts of a real user do not come this way."""


class NoSubjectError(StandInError):
    """Stands for what a user's subject raised in a fixture, where it is built for the first time: the model's doing, not the fixture's."""


@dataclass
class Outcome:
    """What one phase of a case came to."""

    verdict: Verdict
    reason: str
    exception: dict[str, str] | None = None
    blame: dict[str, Any] | None = None
    trace: str = ""
    signal: str | None = None


def judge(error: BaseException, phase: str, case_roots: tuple[str, ...], subject_roots: tuple[str, ...] = ()) -> Outcome:
    """The verdict on an exception that left `phase` (`setup`, `call` or `teardown`) of a case; `subject_roots` hold the user's model."""
    if isinstance(error, StandInError):
        phase = "call" if isinstance(error, NoSubjectError) else phase
        return judge(error.original, phase, case_roots, subject_roots)
    if isinstance(error, pytest.skip.Exception):
        return Outcome(Verdict.UNSUPPORTED, _message(error))
    exception = {"type": _type_name(error, case_roots), "message": _message(error)}
    outcome = Outcome(Verdict.ERROR, "", exception, blame(error, case_roots, subject_roots), _trace(error, case_roots))
    if isinstance(error, ChildDeathError):
        outcome.verdict, outcome.reason, outcome.signal = error.verdict, _first_line(exception["message"]), error.signal
    elif isinstance(error, pytest.xfail.Exception):
        outcome.reason = "the case calls pytest.xfail: known deviations belong into the expectations, not into cases"
    elif isinstance(error, ObservationError):
        outcome.reason = exception["message"]
    elif phase != "call":
        outcome.reason = f"fixture failed in {phase}: {exception['type']}: {_first_line(exception['message'])}"
    elif _is_own_claim(error, case_roots, subject_roots):
        outcome.verdict, outcome.reason = Verdict.WRONG, _claim(exception["message"], outcome.blame)
    else:
        outcome.verdict = Verdict.RAISES
        outcome.reason = f"{exception['type']}: {_first_line(exception['message'])}".removesuffix(": ")
    return outcome


def _claim(message: str, blame: dict[str, Any] | None) -> str:
    """What did not hold: pytest's words, or the source line where these say only that something was false."""
    told = _first_line(message)
    source = blame["source"] if blame is not None else ""
    return source if source and told in ("", "assert False", "assert not True", "assert None") else told or "assertion failed"


def _is_own_claim(error: BaseException, case_roots: tuple[str, ...], subject_roots: tuple[str, ...]) -> bool:
    """Whether the exception says that a claim of the case does not hold, rather than that torch or a subject raised."""
    if isinstance(error, pytest.fail.Exception):
        return True
    if not isinstance(error, AssertionError):
        return False
    frames = _frames(error.__traceback__)
    if not frames:
        return True
    innermost = os.path.realpath(frames[-1][0])
    if innermost.startswith(_SUBJECTS) or _is_of_model(innermost, subject_roots, case_roots):
        return False
    return innermost.startswith(_ours(case_roots)) or any(part in innermost for part in _ASSERTING)


def blame(error: BaseException, case_roots: tuple[str, ...], subject_roots: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """File, line and source that the exception itself names as `blame`; else of the innermost frame in the user's model; else in the case
    or a subject of ours; else in a helper of ours, or of all.
    """
    named = getattr(error, "blame", None)
    if isinstance(named, dict):
        return named
    frames = _frames(error.__traceback__)
    if not frames:
        return None
    real = [os.path.realpath(frame[0]) for frame in frames]
    of_model = [frame for frame, path in zip(frames, real) if _is_of_model(path, subject_roots, case_roots)]
    told = _told_frames(_message(error)) if not of_model else []
    of_model += [frame for frame in told if _is_of_model(os.path.realpath(frame[0]), subject_roots, case_roots)]
    if of_model:
        file, line, source = of_model[-1]
        return {"file": file, "line": line, "source": source}
    own = [frame for frame, path in zip(frames, real) if path.startswith((*case_roots, _SUBJECTS))]
    helping = [frame for frame, path in zip(frames, real) if path.startswith(_PACKAGE + os.sep) and not path.startswith(_IN_CELL)]
    file, line, source = (own or helping or frames)[-1]
    return {"file": file, "line": line, "source": source}


def _told_frames(message: str) -> list[tuple[str, int, str]]:
    """The frames that a message tells of: the compiler and torch.export give the user's stack in their words alone."""
    told = re.findall(r'File "([^"\n]+)", line (\d+)', message)
    return [(file, int(line), linecache.getline(file, int(line)).strip()) for file, line in told]


def _ours(case_roots: tuple[str, ...]) -> tuple[str, ...]:
    return (*case_roots, _PACKAGE + os.sep)


def _is_of_model(path: str, subject_roots: tuple[str, ...], case_roots: tuple[str, ...]) -> bool:
    """Whether a file is the user's model's: below one of its roots, and not in an environment or a checkout of ours that lies there too."""
    below = [root for root in subject_roots if path.startswith(root) and f"{os.sep}site-packages{os.sep}" not in path[len(root) - 1 :]]
    closest = max(map(len, below), default=0)
    return closest > 0 and closest >= max((len(root) for root in _ours(case_roots) if path.startswith(root)), default=0)


def _frames(trace: TracebackType | None) -> list[tuple[str, int, str]]:
    return [(frame.filename, frame.lineno or 0, (frame.line or "").strip()) for frame in traceback.extract_tb(trace)]


def _type_name(error: BaseException, case_roots: tuple[str, ...]) -> str:
    kind = type(error)
    own_file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    if os.path.realpath(own_file).startswith(case_roots or ("/",)) and own_file:
        return kind.__qualname__  # pytest names a case's module after its path
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return _shortened(str(error))
    except Exception as broken:
        return f"<its message could not be read: {type(broken).__name__}>"


def _shortened(message: str) -> str:
    """At most TAIL characters or so: whole lines of its beginning and of its end, where TorchScript says what happened."""
    if len(message) <= TAIL:
        return message
    head, end = message[: TAIL // 2], message[-TAIL // 2 :]
    return f"{head.rpartition(chr(10))[0] or head}\n...\n{end.partition(chr(10))[2] or end}"


def _first_line(message: str) -> str:
    """The line of a message that says something: TorchScript says it last, behind its own traceback, torch.export in a list; one that
    ends with a colon has it in the next.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    if lines[0].startswith("The following operation failed in the TorchScript interpreter"):
        return lines[-1][:500]
    detail = "".join(lines[1:2]) if lines[0].endswith(":") else ""
    if lines[0].startswith("Constraints violated"):
        detail = next((line for line in lines[1:] if line.startswith("- ")), "")
    return f"{lines[0].split(' For more information, run with')[0]} {detail}".strip()[:500]


def _trace(error: BaseException, case_roots: tuple[str, ...]) -> str:
    """The traceback from the case inwards: pytest's own frames say nothing."""
    trace = error.__traceback__
    while trace is not None and not os.path.realpath(trace.tb_frame.f_code.co_filename).startswith(case_roots or ("/",)):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
        return text.replace(f"{type(error).__module__}.{type(error).__qualname__}", _type_name(error, case_roots))[-TAIL:]
    except Exception as broken:
        return f"<the traceback could not be formatted: {type(broken).__name__}>"
