"""The pytest plugin of a cell: cases get their fixtures, their time limit and their record. Load it by `-p conformance.incell.plugin`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.incell import bytecode, collection, features, fingerprint, identity, marks
from conformance.incell.artifacts import Artifacts
from conformance.incell.controller import Controller
from conformance.incell.devices import backend
from conformance.incell.journal import Journal
from conformance.incell.judging import NoSubjectError, SessionEndError, judge
from conformance.incell.parent import die_with_parent
from conformance.incell.recorder import Recorder
from conformance.incell.registered import register
from conformance.incell.settings import Settings, load
from conformance.incell.torchstate import forget_last_error, seed_all
from conformance.incell.trial import Trial
from conformance.incell.verdicts import Verdict

pytest.register_assert_rewrite("conformance.instruments")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--twins`, which gives each case its wrong twins in place of the right idiom."""
    parser.getgroup("conformance").addoption("--twins", action="store_true", help="run each case on each of its wrong twins")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks and the part of the plugin that fits this process: recorder, controller of workers, or neither."""
    for description in marks.REGISTERED.values():
        config.addinivalue_line("markers", description)
    settings = load()
    _register_subjects(settings)
    controls_workers = bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")
    recorder = Recorder(settings) if settings.journal and not controls_workers else None
    if settings.journal:
        die_with_parent()
    if settings.fingerprint:
        fingerprint.take(settings)
    if settings.leaves_bytecode:
        config.add_cleanup(bytecode.leave)
    if controls_workers and settings.journal:
        config.pluginmanager.register(Controller(Journal(settings.journal)), "conformance-controller")
    config.pluginmanager.register(Cell(config, settings, recorder), "conformance-cell")


def _register_subjects(settings: Settings) -> None:
    """Make the user's subjects known; their code is imported by the first case that builds one."""
    sys.path += [root for root in settings.subject_roots if root not in sys.path]
    for alias, subject in settings.subjects.items():
        register(alias, subject["reference"])


@contextmanager
def _kept_inside(recorder: Recorder | None) -> Iterator[None]:
    """Under a supervisor KeyboardInterrupt and pytest.exit() end the case that raises them, and nothing else."""
    try:
        yield
    except (KeyboardInterrupt, pytest.exit.Exception) as error:
        if recorder is None:
            raise
        raise SessionEndError(error) from error


class Cell:
    """Hooks around collection and around each case."""

    def __init__(self, config: pytest.Config, settings: Settings, recorder: Recorder | None) -> None:
        self.config = config
        self.settings = settings
        self.recorder = recorder
        self.backend = backend(settings.device)
        self.twins = settings.twins or bool(config.getoption("--twins"))
        self.roots = tuple(os.path.realpath(root).rstrip(os.sep) + os.sep for root in settings.case_roots)
        self.subject_roots = tuple(_prefix(root) for root in (*settings.subject_roots, *_libraries(settings)))
        self.trial: Trial | None = None
        #: The running case's marks by name, the closest first.
        self.marks: dict[str, list[pytest.Mark]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Say which file is being imported, so that a death or a hang is blamed on it."""
        if self.recorder is None or not isinstance(collector, pytest.Module):
            return (yield)
        case = identity.file_case(str(collector.path), self.settings)
        self.recorder.journal.event("file", file=str(collector.path), case=case)
        self.recorder.begin(case, self.settings.timeout_s)
        try:
            report = yield
        finally:
            output = self.recorder.output.end()
        reason = "" if report.passed else self.recorder.scrub.text(_collect_reason(report))
        self.recorder.journal.event(
            "file-end",
            file=str(collector.path),
            case=case,
            outcome=report.outcome,
            reason=reason,
            output_tail=self.recorder.scrub.text(output),
        )
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None, None, None]:
        """Parameters in a fixed order: subject, dtype, the case's own, the idiom."""
        collection.parametrize_first(metafunc, self.settings)
        yield
        collection.parametrize_idiom(metafunc, twins=self.twins)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        """Keep this cell's cases; when only collecting, describe them."""
        if self.twins:
            for item in items:
                collection.mark_twin(item)
        kept, left = collection.select(items, self.settings, self.recorder.scrub if self.recorder is not None else None)
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = kept
        if self.recorder is not None and config.option.collectonly:
            self.recorder.journal.event("left-out", cases=[item.conformance_case for item in left])
            for item in kept:
                self.recorder.journal.event("case", **collection.describe(item, self.settings, self.recorder.scrub))
            self.recorder.journal.event("collected", cases=len(kept))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        """A trial around setup, call and teardown; an exit in between leaves no `end`, and so names the case as culprit.

        First of all wrappers: pytest's own hands over the warnings at its end, and they belong into the record.
        """
        case, self.marks = item.conformance_case, _marks_of(item)
        if self.recorder is not None:
            self.recorder.begin(case, collection.limit(self.marks, "timeout_s") or self.settings.timeout_s)
        self.trial = Trial(case, self.settings.seed)
        self.trial.takes_device = "device" in item.fixturenames
        if self.recorder is not None:
            self.trial.tell = self.recorder.stage
        seed_all(self.settings.seed, self.settings.device)
        result = yield
        if self.recorder is not None:
            self.recorder.finish(self.trial)
        else:
            self.trial.state.restore()
        if self.trial.outcomes and self.trial.takes_device and self.settings.device != "cpu":
            forget_last_error()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: Any) -> Generator[None, Any, Any]:
        """Skip what this cell cannot do, with the reason."""
        self._skip_what_lacks(item)
        with _kept_inside(self.recorder):
            return (yield)

    def _skip_what_lacks(self, item: Any) -> None:
        if self.settings.device == "meta" and "values" in self.marks:
            pytest.skip(collection.NO_VALUES)
        needs = [need for mark in self.marks.get("requires", ()) for need in mark.args]
        if needs:
            reason = features.lack(needs, self.backend.activate() if "device" in item.fixturenames else "cpu")
            if reason:
                pytest.skip(reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """Count what runs on the device, and wait for it before the case counts as done."""
        trial = self.trial
        if self.recorder is not None:
            self.recorder.journal.phase("call")
        if trial is None or not trial.takes_device or self.settings.device == "cpu":
            with _kept_inside(self.recorder):
                return (yield)
        trial.meter = self.backend.meter(dispatch="uncounted" not in self.marks)
        try:
            with trial.meter.counting(), _kept_inside(self.recorder):
                result = yield
            self.backend.synchronize()
            return result
        finally:
            trial.meter.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        """Say that a death from here on is a fixture's."""
        if self.recorder is not None:
            self.recorder.journal.phase("teardown")
        with _kept_inside(self.recorder):
            return (yield)

    def pytest_runtest_makereport(self, item: Any, call: pytest.CallInfo[Any]) -> pytest.TestReport | None:
        """Judge the phase. Under a supervisor the report is short and cannot fail; by hand pytest makes its own."""
        error = call.excinfo.value if call.excinfo is not None else None
        outcome = judge(error, call.when, self.roots, self.subject_roots) if error is not None else None
        if outcome is not None and self.trial is not None:
            self.trial.outcomes.append(outcome)
        if self.recorder is None:
            return None
        passed = outcome is None
        skipped = outcome is not None and outcome.verdict is Verdict.UNSUPPORTED
        longrepr: Any = None if passed else (str(item.path), 0, outcome.reason) if skipped and outcome else outcome and outcome.reason
        state: Any = "passed" if passed else "skipped" if skipped else "failed"
        when: Any = call.when
        return pytest.TestReport(item.nodeid, item.location, {}, state, longrepr, when, duration=call.duration)

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        """A warning may say that an op fell back to the CPU."""
        if self.trial is not None and self.trial.meter is not None:
            self.trial.meter.warned(str(warning_message.message))

    @pytest.fixture
    def device(self) -> Any:
        """The torch.device of this cell."""
        return self.backend.activate()

    @pytest.fixture
    def dtype(self, request: pytest.FixtureRequest) -> Any:
        """A torch.dtype: those of the mark `dtypes` in turn, else float32. `unsupported` where this torch has none of that name."""
        import torch

        name = getattr(request, "param", "float32")
        if not hasattr(torch, name):
            pytest.skip(f"this torch has no dtype {name}")
        return getattr(torch, name)

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest) -> Any:
        """The subjects of the mark `subjects` in turn; a user's that cannot be had is the subject's fault, not the harness's."""
        from conformance.subjects import get

        assert self.trial is not None
        try:
            with self.trial.stage("build"):
                return get(request.param)
        except Exception as error:
            if request.param not in self.settings.subjects:
                raise
            raise NoSubjectError(error) from error

    @pytest.fixture
    def observe(self) -> Callable[..., None]:
        """`observe(name, value, better=None)` records a measured value beside the verdict."""
        assert self.trial is not None
        return self.trial.observe

    @pytest.fixture
    def stage(self) -> Callable[..., Any]:
        """`with stage("lower", "aten.median.dim"):` says how far the case came, and with what, should it end inside."""
        assert self.trial is not None
        return self.trial.stage

    @pytest.fixture
    def artifact(self) -> Callable[[str, str], str]:
        """`artifact("program.mlir", text)` keeps a text beside the cell's results; observed is where, relative to the cell's folder."""
        assert self.trial is not None
        kept = Artifacts(self.settings.artifacts, self.trial.case, self.recorder.scrub if self.recorder is not None else None)
        observe = self.trial.observe

        def keep(name: str, text: str) -> str:
            path = kept.keep(name, text)
            observe(f"artifact {name}", path)
            return path

        return keep

    @pytest.fixture
    def depth(self) -> str:
        """`default` or `deep`."""
        return self.settings.depth


def _prefix(root: str) -> str:
    """What the path of each file below `root` begins with."""
    return os.path.realpath(root).rstrip(os.sep) + os.sep


def _libraries(settings: Settings) -> list[str]:
    """The folders of installed packages that a subject comes from: of `transformers:LlamaModel`, transformers' own."""
    names = {subject["reference"].partition(":")[0].partition(".")[0] for subject in settings.subjects.values()}
    found = (importlib.util.find_spec(name) for name in sorted(names - {"conformance"}) if name.isidentifier())
    return [folder for spec in found if spec is not None for folder in spec.submodule_search_locations or ()]


def _marks_of(item: Any) -> dict[str, list[pytest.Mark]]:
    marks: dict[str, list[pytest.Mark]] = {}
    for mark in item.iter_markers():
        marks.setdefault(mark.name, []).append(mark)
    return marks


def _collect_reason(report: Any) -> str:
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return str(longrepr[-1])
    lines = [line for line in str(longrepr).splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or ["collection failed"])[-1][:500]
