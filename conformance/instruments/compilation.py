"""One way to measure torch.compile on torch 2.0 to the newest: graphs, breaks, recompiles and whom to blame.

What torch itself offers changed with nearly every release: `explain` returned a tuple and now an object, guard failures are
told by a hook, by a log or by a table, reasons of breaks have a list since 2.1, whole frames left to Python are told by none.
So this listens at two places that have kept their names: where a subgraph is compiled, and where a frame is translated.
"""

from __future__ import annotations

import copy
import functools
import re
import sysconfig
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Observe = Callable[..., None]

_TORCH = str(Path(torch.__file__).resolve().parent)
_PROJECT = Path(__file__).resolve().parents[2]
#: Ours are no user's code either, adapters of libraries among them: what they wrap is then the innermost frame outside torch.
_OURS = tuple(str(_PROJECT / "conformance" / folder) for folder in ("instruments", "subjects"))
_LIBRARIES = (_TORCH, sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], *_OURS)
#: How dynamo says that a frame had nothing to compile, which is nobody's fault.
_EMPTY = ("no content in function call", "No ops traced")


@dataclass(frozen=True)
class Break:
    """Why a graph ended early, or why a whole frame was left to Python.

    `blame` is the innermost frame in the user's code as `file:line: source`, `inside` the innermost outside torch.
    """

    reason: str
    blame: str
    inside: str = ""
    #: The line of `blame` as records have it: `file`, `line`, `source`.
    line: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass
class Report:
    """What compiling came to. A `skipped` frame runs in Python as a whole; one that has nothing to compile is not counted."""

    graphs: int = 0
    ops: int = 0
    breaks: list[Break] = field(default_factory=list)
    skipped: list[Break] = field(default_factory=list)
    #: The guard that failed, for each frame that was compiled again.
    recompiles: list[str] = field(default_factory=list)
    #: Number of graphs after each call.
    after: list[int] = field(default_factory=list)


def has_dynamo_config(name: str) -> bool:
    """Whether dynamo's configuration has that entry."""
    from torch._dynamo import config

    return hasattr(config, name)


def reset() -> None:
    """`torch._dynamo.reset()`, and what that forgets until 2.2: classes of modules that compiled code wrote to are guarded ever after."""
    import torch._dynamo as dynamo
    from torch._dynamo import mutation_guard

    dynamo.reset()
    tracker = mutation_guard.GenerationTracker
    for table in ("dynamic_classes", "generation_values"):
        setattr(tracker, table, type(getattr(tracker, table))())


@contextmanager
def compiling(code: Callable[..., Any], backend: str = "eager", **options: Any) -> Iterator[tuple[Callable[..., Any], Report]]:
    """`code` under torch.compile with a backend that counts, and the report that its calls fill; dynamo is reset before and after."""
    import torch._dynamo as dynamo

    report = Report()
    reset()
    dynamo.utils.counters.clear()
    reporting = {"report_guard_failures": True} if has_dynamo_config("report_guard_failures") else {}
    try:
        with dynamo.config.patch(reporting), _listening(report):
            yield torch.compile(code, backend=_counting(backend, report), **options), report
    finally:
        reset()


def _counting(backend: str, report: Report) -> Callable[..., Any]:
    from torch._dynamo.backends.registry import lookup_backend

    compile_graph = lookup_backend(backend)

    def counting(graph: Any, examples: Sequence[Any]) -> Any:
        report.graphs += 1
        report.ops += sum(node.op.startswith("call_") for node in graph.graph.nodes)
        return compile_graph(graph, examples)

    return counting


@contextmanager
def _listening(report: Report) -> Iterator[None]:
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.symbolic_convert import InstructionTranslator

    listener = _Listener(report)
    with _replaced(OutputGraph, "compile_subgraph", listener.subgraph), _replaced(InstructionTranslator, "run", listener.frame):
        yield


@contextmanager
def _replaced(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """`owner.name(self, ...)` becomes `around(original, self, ...)`; an inherited method is taken off again."""
    own, original = vars(owner).get(name), getattr(owner, name)

    @functools.wraps(original)
    def replacement(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(original, self, *arguments, **named)

    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


class _Listener:
    """Collects reasons while a frame is translated, and keeps them when its translation ends well: dynamo starts over often."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.pending: list[list[Break]] = []
        self.compiled: Counter[Any] = Counter()
        self.told: Counter[Any] = Counter()

    def subgraph(self, original: Callable[..., Any], graph: Any, *arguments: Any, **named: Any) -> Any:
        """A subgraph is compiled, because the frame ends or because it breaks."""
        result = original(graph, *arguments, **named)
        reason = next((a for a in (*arguments, *named.values()) if type(a).__name__ == "GraphCompileReason"), None)
        if reason is not None and getattr(reason, "graph_break", reason.reason != "return_value") and self.pending:
            self.pending[-1].append(_break(reason.reason, reason.user_stack))
        return result

    def frame(self, original: Callable[..., Any], translator: Any) -> Any:
        """A frame is translated, well or not."""
        from torch._dynamo.exc import RestartAnalysis

        self.pending.append([])
        try:
            result = original(translator)
        except RestartAnalysis:
            self.pending.pop()
            raise
        except Exception as error:
            self.pending.pop()
            if not any(words in str(error) for words in _EMPTY):
                self.report.skipped.append(_break(str(error), getattr(error, "real_stack", None) or [translator.frame_summary()]))
            raise
        self.report.breaks += self.pending.pop()
        self._recompiled(translator.f_code)
        return result

    def _recompiled(self, code: Any) -> None:
        from torch._dynamo.utils import guard_failures

        failures = guard_failures.get(code, [])
        if self.compiled[code]:
            self.report.recompiles.append(_guard(failures[self.told[code]]) if len(failures) > self.told[code] else "not told")
        self.compiled[code] += 1
        self.told[code] = len(failures)


def _guard(reason: Any) -> str:
    """The guard itself: no compile id before it, no place in the source behind it."""
    text = str(reason[0] if isinstance(reason, tuple) else reason)
    return _steady(re.sub(r"^\d+/\d+(_\d+)?: ", "", text).split("  # ")[0])


def _steady(text: str) -> str:
    """The first line, without what differs from run to run: addresses, identities, paths, the order of a set of names."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"0x[0-9a-f]+|\b\d{9,}\b", "...", line)
    line = re.sub(r"\{('[^{}:]*')\}", lambda names: f"{{{', '.join(sorted(names[1].split(', ')))}}}", line)
    return re.sub(r"""(?:/[^/\s'"]+)+/([^/\s'"]+)""", r"\1", line)[:200]


def _break(reason: str, stack: Sequence[traceback.FrameSummary]) -> Break:
    outside = [frame for frame in stack if not frame.filename.startswith(_TORCH)] or list(stack)
    users = [frame for frame in outside if not frame.filename.startswith(_LIBRARIES)] or outside
    return Break(_steady(reason), _place(users), _place(outside), _line(users))


def _line(frames: Sequence[traceback.FrameSummary]) -> dict[str, Any]:
    return {"file": frames[-1].filename, "line": frames[-1].lineno, "source": (frames[-1].line or "").strip()} if frames else {}


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    if not frames:
        return "unknown"
    path = Path(frames[-1].filename)
    shown = path.relative_to(_PROJECT).as_posix() if _PROJECT in path.parents else path.name
    return f"{shown}:{frames[-1].lineno}: {(frames[-1].line or '').strip()}"


def observe_report(report: Report, observe: Observe) -> None:
    """Observe the counts, fewer being better, and what is to blame, in words."""
    observe("graphs", report.graphs, better="lower")
    observe("breaks", len(report.breaks), better="lower")
    observe("skipped", len(report.skipped), better="lower")
    observe("recompiles", len(report.recompiles), better="lower")
    for name, told in (("breaks_told", report.breaks), ("skipped_told", report.skipped)):
        observe(name, "; ".join(f"{one.reason} at {one.blame}" for one in told) or "none")
    observe("recompiles_told", "; ".join(report.recompiles) or "none")


def fullgraph_error(code: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The class of what `fullgraph=True` raises on one call, or `none`."""
    with compiling(copy.deepcopy(code), fullgraph=True) as (compiled, _):
        try:
            compiled(*copy.deepcopy(arguments), **copy.deepcopy(named))
        except Exception as error:
            return type(error).__name__
    return "none"
