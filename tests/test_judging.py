"""Who is to blame for an exception: the rules by which a case author gets the verdict for nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from conformance.incell.judging import judge
from conformance.incell.verdicts import Verdict, worst

CASES = """
import unittest

import numpy.testing
import pytest

import library

def asserts(): assert 1 == 2, "one is not two"
def library_asserts(): library.check()
def library_raises(): library.work()
def numpy_asserts(): numpy.testing.assert_equal(1, 2)
def unittest_asserts(): unittest.TestCase().assertEqual(1, 2)
def did_not_raise():
    with pytest.raises(ValueError): pass
def raises_another():
    with pytest.raises(ValueError): raise KeyError("k")
def wrong_message():
    with pytest.raises(ValueError, match="apples"): raise ValueError("pears")
def fails(): pytest.fail("no good")
def says_false():
    assert all(number > 1 for number in (1, 2))
def skips(): pytest.skip("absent")
def xfails(): pytest.xfail("known")
def chained():
    try: library.work()
    except RuntimeError as error: raise AssertionError("wrapped") from error
def exits(): raise SystemExit(3)
def speechless():
    class Odd(Exception):
        def __str__(self): raise ValueError
    raise Odd
"""
LIBRARY = """
def check(): assert False, "internal"
def work(): raise RuntimeError("no kernel\\nmore words")
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, tuple[str, ...]]:
    folder = tmp_path_factory.mktemp("judged")
    (folder / "site").mkdir()
    (folder / "cases").mkdir()
    (folder / "site" / "library.py").write_text(LIBRARY, encoding="utf-8")
    (folder / "cases" / "judged_cases.py").write_text(CASES, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        return _loaded(folder / "cases" / "judged_cases.py"), (str(folder / "cases") + "/",)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _error(action: Callable[[], object]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("it was meant to raise")


@pytest.mark.parametrize(
    ("name", "verdict", "reason"),
    [
        ("asserts", Verdict.WRONG, "one is not two"),
        ("library_asserts", Verdict.RAISES, "AssertionError: internal"),
        ("library_raises", Verdict.RAISES, "RuntimeError: no kernel"),
        ("numpy_asserts", Verdict.WRONG, "Items are not equal:"),
        ("unittest_asserts", Verdict.WRONG, "1 != 2"),
        ("did_not_raise", Verdict.WRONG, "DID NOT RAISE"),
        ("raises_another", Verdict.RAISES, "KeyError: 'k'"),
        ("wrong_message", Verdict.WRONG, "Regex pattern did not match."),
        ("fails", Verdict.WRONG, "no good"),
        ("says_false", Verdict.WRONG, "assert all(number > 1 for number in (1, 2))"),
        ("skips", Verdict.UNSUPPORTED, "absent"),
        ("xfails", Verdict.ERROR, "known deviations belong into the expectations"),
        ("chained", Verdict.WRONG, "wrapped"),
        ("exits", Verdict.RAISES, "SystemExit: 3"),
        ("speechless", Verdict.RAISES, "its message could not be read: ValueError"),
    ],
)
def test_an_exception_of_the_call(cases: tuple[ModuleType, tuple[str, ...]], name: str, verdict: Verdict, reason: str) -> None:
    module, roots = cases
    outcome = judge(_error(getattr(module, name)), "call", roots)
    assert outcome.verdict is verdict
    assert reason in outcome.reason


def test_a_failing_fixture_is_an_error_and_a_skipping_one_is_not(cases: tuple[ModuleType, tuple[str, ...]]) -> None:
    module, roots = cases
    assert judge(_error(module.asserts), "setup", roots).verdict is Verdict.ERROR
    assert judge(_error(module.library_raises), "teardown", roots).reason == "fixture failed in teardown: RuntimeError: no kernel"
    assert judge(_error(module.skips), "setup", roots).verdict is Verdict.UNSUPPORTED


def test_blame_is_the_innermost_line_of_the_case(cases: tuple[ModuleType, tuple[str, ...]]) -> None:
    module, roots = cases
    outcome = judge(_error(module.library_raises), "call", roots)
    assert outcome.blame is not None
    assert outcome.blame["file"].endswith("cases/judged_cases.py")
    assert outcome.blame["source"] == "def library_raises(): library.work()"
    assert outcome.exception == {"type": "RuntimeError", "message": "no kernel\nmore words"}
    assert "_error" not in outcome.trace


def test_cases_that_lie_in_the_models_project_speak_for_themselves(cases: tuple[ModuleType, tuple[str, ...]]) -> None:
    """A checkout of the tool in the user's project: what its cases claim is no error of the model."""
    module, roots = cases
    project = (str(Path(roots[0]).parent) + "/",)
    outcome = judge(_error(module.asserts), "call", roots, project)
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "one is not two")
    loud = judge(_error(module.library_asserts), "call", roots, project)
    assert loud.verdict is Verdict.RAISES
    assert loud.blame is not None
    assert loud.blame["file"].endswith("site/library.py")


def test_a_long_message_keeps_whole_lines_of_both_its_ends() -> None:
    middle = "\n".join(f"/home/somebody/frame_{number}.py" for number in range(1000))
    outcome = judge(RuntimeError(f"The following operation failed in the TorchScript interpreter\n{middle}\nsizes differ"), "call", ("/",))
    assert outcome.reason == "RuntimeError: sizes differ"
    assert outcome.exception is not None
    lines = outcome.exception["message"].splitlines()
    assert len(outcome.exception["message"]) <= 4100
    assert all(line.startswith("/home/somebody/frame_") and line.endswith(".py") for line in lines[1:-1] if line != "...")


def test_a_roll_up_takes_the_worst() -> None:
    assert worst([Verdict.PASS, Verdict.UNSUPPORTED, Verdict.RAISES, Verdict.CRASH]) is Verdict.CRASH
    assert worst([Verdict.UNSUPPORTED, Verdict.PASS]) is Verdict.PASS
    assert worst([]) is None
