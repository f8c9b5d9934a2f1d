"""What stands around the family lowering: processes with limits, compilers' errors, artifacts, packages, and where it is planned."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import record

from conformance.config import builtin_cases
from conformance.configfile import load
from conformance.environmentathand import AtHand
from conformance.environments import Environments
from conformance.errors import ConfigError
from conformance.incell.artifacts import Artifacts
from conformance.incell.deaths import ChildDeathError
from conformance.incell.judging import judge
from conformance.incell.scrub import Scrubber
from conformance.incell.trial import Trial
from conformance.incell.verdicts import Verdict
from conformance.instruments import children
from conformance.instruments.lowering.passes import complaints
from conformance.ledger import Ledger
from conformance.merge import collect
from conformance.plan import Selection, make

ROOT = Path(__file__).parent.parent
LIMIT = children.Limit(seconds=3.0, megabytes=2_000)

_STACK = 'loc(callsite("/model/deep.py":12:0 at "/model/net.py":3:0))'
_OP = '%4:2 = "torch.operator"(%3) <{name = "torch.aten.median.dim"}> : (!torch.tensor) -> (!torch.tensor, !torch.tensor)'
MEDIAN = f"""\
/model/deep.py:12:0: error: failed to legalize operation 'torch.operator' that was explicitly marked illegal: {_OP} {_STACK}
/model/net.py:3:0: note: called from
/model/deep.py:12:0: note: see current operation: {_OP} {_STACK}
"""
COMPLEX = "/model/net.py:8:0: error: 'math.absf' op operand #0 must be floating-point-like, but got 'complex<f32>'\n"


def test_an_error_tells_op_types_and_stack() -> None:
    (found,) = complaints(MEDIAN)
    assert (found.op, found.message) == ("torch.aten.median.dim", "the torch dialect has no op torch.aten.median.dim")
    assert found.types == "(!torch.tensor) -> (!torch.tensor, !torch.tensor)"
    assert [frame[:2] for frame in found.frames] == [("/model/deep.py", 12), ("/model/net.py", 3)]
    assert (found.blame or {})["line"] == 12


def test_every_error_of_a_run_is_told() -> None:
    assert [each.op for each in complaints(COMPLEX + MEDIAN)] == ["math.absf", "torch.aten.median.dim"]


def test_words_without_an_error_are_told_as_they_are() -> None:
    assert str(complaints("something\nLLVM ERROR: out of memory\n")[0]) == "LLVM ERROR: out of memory"


def _child(code: str) -> children.Ended:
    return children.run([sys.executable, "-c", code], LIMIT, "the step")


def test_a_child_that_ends_tells_its_code_and_words() -> None:
    ended = _child("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (ended.code, ended.out.strip(), ended.err.strip()) == (3, "out", "err")


def test_a_child_that_computes_for_ever_is_ended_by_its_own_time() -> None:
    with pytest.raises(ChildDeathError, match="the step did not end within 3 s of processor time") as caught:
        _child("while True: pass")
    assert caught.value.verdict is Verdict.TIMEOUT


def test_a_child_that_aborts_is_a_crash_with_its_last_words() -> None:
    with pytest.raises(ChildDeathError, match="the step died of SIGABRT: Assertion `x' failed") as caught:
        _child('import os, sys; print("Assertion `x\' failed", file=sys.stderr, flush=True); os.abort()')
    assert (caught.value.verdict, caught.value.signal) == (Verdict.CRASH, "SIGABRT")


def test_a_child_that_somebody_killed_was_not_late() -> None:
    with pytest.raises(ChildDeathError, match="the step died of SIGKILL") as caught:
        _child("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (caught.value.verdict, caught.value.signal) == (Verdict.CRASH, "SIGKILL")


def test_a_child_that_hears_of_its_limit_and_goes_on_is_late() -> None:
    with pytest.raises(ChildDeathError, match="the step did not end within 3 s of processor time") as caught:
        _child("import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert caught.value.verdict is Verdict.TIMEOUT


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux alone")
def test_a_child_gets_no_more_memory_than_its_limit() -> None:
    assert "MemoryError" in _child("x = bytearray(3_000_000_000)").err


def test_the_death_of_a_child_is_the_verdict_of_its_case() -> None:
    error = ChildDeathError(Verdict.CRASH, "torch-mlir-opt died of SIGSEGV", "SIGSEGV", {"file": "net.py", "line": 3, "source": "x"})
    outcome = judge(error, "call", ("/cases/",))
    assert (outcome.verdict, outcome.signal, outcome.blame) == (Verdict.CRASH, "SIGSEGV", error.blame)
    trial = Trial("lowering.x", 0)
    trial.outcomes.append(outcome)
    assert trial.record("", [], Scrubber({}))["signal"] == "SIGSEGV"


def test_a_case_that_passes_came_as_far_as_it_came() -> None:
    trial, told = Trial("lowering.x", 0), []
    trial.tell = lambda stage, work: told.append((stage, work))
    for stage, work in (("compare", ""), ("lower", "aten.view")):
        with trial.stage(stage, work):
            pass
    assert trial.record("", [], Scrubber({}))["stage"] == "compare"
    assert told == [("compare", ""), ("run", ""), ("lower", "aten.view"), ("run", "")]


def test_a_twins_verdict_may_depend_on_a_parameter() -> None:
    code = """if True:
        from conformance.incell.marks import Twin
        twin = Twin(len, {"script": "wrong", "export": "raises"})
        print([twin.stated(params) for params in (["export", "opt"], ["script"], ["else"])])
    """
    assert _child(code).out.strip() == "['raises', 'wrong', 'wrong']"


def test_artifacts_are_kept_without_names_of_the_machine_and_pruned_with_their_record(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "torch2.13.0-py3.11-cpu-linux_x86_64"
    kept = Artifacts(str(folder / "artifacts"), "lowering.x[a/b]", Scrubber({"<env>": "/here/env"}))
    path = kept.keep("program.mlir", "loc(/here/env/x.py)")
    stale = Artifacts(str(folder / "artifacts"), "lowering.y", None).keep("program.mlir", "old")
    assert (folder / path).read_text(encoding="utf-8") == "loc(<env>/x.py)"
    ledger = Ledger(folder.name, folder, tmp_path / "work", [builtin_cases()])
    told = {"artifact program.mlir": {"kind": "text", "value": path}}
    ledger.records[("lowering.x[a/b]", 1)] = record("2.13.0", "lowering.x[a/b]", "raises", observations=told)
    ledger.write({})
    assert ((folder / path).exists(), (folder / stale).parent.exists()) == (True, False)
    collect([tmp_path], tmp_path / "merged")
    assert (tmp_path / "merged" / "results" / folder.name / path).exists()


def test_packages_are_pinned_in_one_place_and_told_where_they_are_not_to_be_had(tmp_path: Path) -> None:
    config = load(tmp_path)
    environments = Environments(config, print)
    planned = make(config, Selection(torch="2.13.0", devices=("cpu",), families=("lowering",))).cells[0]
    request = environments.request(planned, "torch_mlir", ["torch-mlir", "transformers"])
    assert f"torch-mlir{config.packages['torch-mlir'].version}" in request.requirements
    assert environments.request(planned, "torch_mlir", ["torch-mlir==1"]).requirements[-1] == "torch-mlir==1"
    (tmp_path / "pyproject.toml").write_text('[tool.conformance.packages]\ntorch-mlir = { python = ">=3.12" }\n', encoding="utf-8")
    narrow = load(tmp_path)
    assert "wants Python >=3.12" in Environments(narrow, print).lack(planned, ["torch-mlir"])
    assert Environments(narrow, print).lack(planned, ["transformers"]) == AtHand(narrow, print).lack(planned, ["torch-mlir"]) == ""


def _without(config: object, **asked: object) -> list[tuple[str, ...]]:
    return [cell.without for cell in make(config, Selection(devices=("cpu",), **asked)).cells]


def test_a_profile_plans_the_family_on_its_newest_release_alone(tmp_path: Path) -> None:
    config = load(tmp_path)
    *older, newest = _without(config)
    assert (set(older), newest) == ({("lowering",)}, ())
    for asked in ({"families": ("lowering",)}, {"profile": "full"}, {"torch": "2.0.1,2.8.0"}, {"cells": ("torch2.4.1*",)}):
        assert set(_without(config, **asked)) == {()}


def test_a_named_cell_has_what_the_plan_that_named_it_has(tmp_path: Path) -> None:
    config = load(tmp_path)
    full = make(config, Selection(devices=("cpu",), profile="full")).cells
    assert set(_without(config, cells=tuple(str(cell.cell) for cell in full))) == {()}
    quick = make(config, Selection(devices=("cpu",))).cells
    again = make(config, Selection(devices=("cpu",), cells=tuple(str(cell.cell) for cell in quick), profile="quick")).cells
    assert [(cell.cell, cell.without) for cell in again] == [(cell.cell, cell.without) for cell in quick]


def test_wrong_tables_are_told(tmp_path: Path) -> None:
    text = '[tool.conformance]\non-request = ["x"]\n[tool.conformance.newest-only]\nfast = ["lowering"]\n'
    text += '[tool.conformance.packages]\ntorch-mlir = { version = "1.2", wheel = "x" }\niree = 3\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    for word in ("on-request", "newest-only.fast", "packages.torch-mlir.version", "packages.torch-mlir.wheel", "packages.iree"):
        assert word in str(caught.value)
