"""One way to measure torch.compile on torch 2.0 to the newest: graphs, breaks, recompiles and whom to blame, and is the answer eager's?

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

from conformance.instruments.generalization import Outcome, difference_of
from conformance.instruments.snapshots import snapshot, state_of, tensors_of

Observe = Callable[..., None]

_TORCH = str(Path(torch.__file__).resolve().parent)
_PROJECT = Path(__file__).resolve().parents[2]
_LIBRARIES = (_TORCH, sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], str(Path(__file__).resolve().parent))
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


@dataclass(frozen=True)
class Call:
    """Arguments of one call, and what is done to the code `before` it: an attribute set from outside, a mode switched."""

    arguments: Sequence[Any] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[Any], object] | None = None


def call(*arguments: Any, before: Callable[[Any], object] | None = None, **named: Any) -> Call:
    """A Call, written as the call is."""
    return Call(arguments, named, before)


@dataclass
class _Done:
    """What one call left: a snapshot of everything that can be seen, or the exception."""

    seen: dict[str, Any]
    error: Exception | None = None


def _perform(target: Callable[..., Any], code: Callable[..., Any], planned: Call, *, backward: bool) -> _Done:
    if planned.before is not None:
        planned.before(code)
    arguments, named = copy.deepcopy((planned.arguments, dict(planned.named)))
    try:
        result = target(*arguments, **named)
        if backward:
            _back(result)
    except Exception as error:
        return _Done({"arguments": snapshot((arguments, named)), "state": state_of(code)}, error)
    gradients = [snapshot(tensor.grad if tensor.is_leaf else None) for tensor in tensors_of((arguments, named))]
    return _Done({"result": snapshot(result), "arguments": snapshot((arguments, named)), "grads": gradients, "state": state_of(code)})


def _back(result: Any) -> None:
    losses = [tensor.pow(2).sum() for tensor in tensors_of(result) if tensor.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()


def _judged(name: str, expected: _Done, got: _Done) -> Outcome:
    """A difference from eager is wrong; an exception that eager has not is the compiler's own.

    Where eager raises, so must compiled code, by the same class or one derived from it: what catches the one must catch the other.
    """
    if expected.error is None:
        return Outcome(name, error=got.error) if got.error is not None else Outcome(name, difference=_difference(expected, got))
    if got.error is None:
        return Outcome(name, difference=f"eager code raises {type(expected.error).__name__}, compiled code answers")
    if not isinstance(got.error, type(expected.error)):
        return Outcome(name, difference=f"eager code raises {type(expected.error).__name__}, compiled code {type(got.error).__name__}")
    return Outcome(name, difference=_difference(expected, got))


def _difference(expected: _Done, got: _Done) -> str:
    return difference_of(expected.seen, got.seen, "what is seen")


Compile = Callable[..., Any]


def check_compiled(
    code: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any] | Call],
    observe: Observe | None = None,
    *,
    compiled_by: Compile = compiling,
    backend: str = "eager",
    backward: bool = False,
    fresh: Callable[[], object] | None = None,
    **options: Any,
) -> Report:
    """Make all calls of `inputs` (name -> arguments) in eager code, then in compiled code, each on a copy of `code`, and compare.

    Compared are values, dtypes, container types, requires_grad, exceptions, what was written into arguments, the code's own
    state and, with `backward`, gradients. `fresh` puts globals back before each of the two runs. Raises AssertionError at
    the first call that differs; with none, the compiler's own exception. Observes what the report holds.
    """
    calls = {name: given if isinstance(given, Call) else Call(given) for name, given in inputs.items()}
    ours, theirs = copy.deepcopy(code), copy.deepcopy(code)
    if fresh is not None:
        fresh()
    expected = [_perform(ours, ours, planned, backward=backward) for planned in calls.values()]
    if fresh is not None:
        fresh()
    got = []
    with compiled_by(theirs, backend=backend, **options) as (compiled, report):
        for planned in calls.values():
            got.append(_perform(compiled, theirs, planned, backward=backward))
            report.after.append(report.graphs)
    outcomes = [_judged(name, *pair) for name, pair in zip(calls, zip(expected, got))]
    if observe is not None:
        observe_report(report, observe)
        observe("calls", ", ".join(f"{outcome.variation}={outcome.text}" for outcome in outcomes))
    _raise_first(outcomes)
    return report


def observe_report(report: Report, observe: Observe) -> None:
    """Observe the counts, fewer being better, and what is to blame, in words."""
    observe("graphs", report.graphs, better="lower")
    observe("breaks", len(report.breaks), better="lower")
    observe("skipped", len(report.skipped), better="lower")
    observe("recompiles", len(report.recompiles), better="lower")
    for name, told in (("breaks_told", report.breaks), ("skipped_told", report.skipped)):
        observe(name, "; ".join(f"{one.reason} at {one.blame}" for one in told) or "none")
    observe("recompiles_told", "; ".join(report.recompiles) or "none")


def _raise_first(outcomes: Sequence[Outcome]) -> None:
    wrong = [outcome for outcome in outcomes if outcome.difference]
    assert not wrong, f"call {wrong[0].variation!r}: {wrong[0].difference}"
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def fullgraph_error(code: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The class of what `fullgraph=True` raises on one call, or `none`."""
    with compiling(copy.deepcopy(code), fullgraph=True) as (compiled, _):
        try:
            compiled(*copy.deepcopy(arguments), **copy.deepcopy(named))
        except Exception as error:
            return type(error).__name__
    return "none"
