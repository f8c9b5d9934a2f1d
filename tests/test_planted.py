"""Planted faults in a real cell: N of N recorded, with the right verdict, whatever the cases do to their process."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from conftest import project_with, records_of, run_conformance

from conformance.cells import this_platform

PLANTED = Path(__file__).parent / "planted"
CELL = f"torch2.13.0-py3.11-cpu-{this_platform()}"

EXPECTED = {
    "user.null_dereference": ("crash", "SIGSEGV, in call"),
    "user.abort": ("crash", "SIGABRT, in call"),
    "user.exit_0": ("crash", "exit code 0, in call"),
    "user.kills_itself": ("crash", "SIGKILL, in call"),
    "user.system_exit": ("raises", "SystemExit: 3"),
    "user.teardown_segfault": ("crash", "SIGSEGV, in teardown"),
    "user.hang_in_sleep": ("timeout", "did not end within 1.5 s"),
    "user.hang_in_c_without_gil": ("timeout", "did not end within 1.5 s"),
    "user.hang_in_c_with_gil": ("timeout", "did not end within 1.5 s"),
    "user.failing_fixture": ("error", "fixture failed in setup: RuntimeError: the fixture is broken"),
    "user.failing_teardown": ("error", "fixture failed in teardown: RuntimeError: the fixture is broken at its end"),
    "user.prints_10000_lines": ("wrong", "assert (1 + 1) == 3"),
    "user.memory_hog": ("crash", "the limit is 1500 MB, in call"),
    "user.unprintable_exception": ("raises", "its message could not be read: ValueError"),
    "user.wrong": ("wrong", "assert [1, 2] == [1, 3]"),
    "user.did_not_raise": ("wrong", "DID NOT RAISE"),
    "user.raises": ("raises", "KeyError: 'absent'"),
    "user.skips": ("unsupported", "not here"),
    "user.path_as_parameter[<cases1>/test_faults.py]": ("raises", "OwnError: <cases1>/test_faults.py"),
    "user.keyboard_interrupt": ("raises", "KeyboardInterrupt"),
    "user.pytest_exit": ("raises", "the whole session"),
    "user.json_patched": ("pass", ""),
    "user.leaves_a_process_of_its_own_session": ("pass", ""),
    "user.forked_child_goes_on": ("pass", ""),
    "user.Outer.Inner.nested": ("pass", ""),
    "user.Other.Inner.nested": ("pass", ""),
    "user.observes_what_it_cannot": ("error", "'too large' cannot be observed: OverflowError"),
    "user.leaks": ("pass", ""),
    "user.leaks_are_put_back": ("pass", ""),
    "user.Old.unittest_style": ("wrong", "1 != 2"),
    "user.async": ("error", "async cases are not run"),
    "user.duplicate": ("error", "two cases have this id: test_faults.py:"),
    "user.xfail": ("error", "xfail marks are refused"),
    "user.says_who_it_is": ("raises", "RuntimeError: <tmp> <env>/bin/python <home>/hidden <private> <private>"),
    "user.import_segfault": ("crash", "SIGSEGV, while user.import_segfault was imported"),
    "user.import_error": ("error", "No module named 'a_module_that_is_not_there'"),
    **{f"user.ordinary_{number}": ("pass", "") for number in (1, 2, 3, 4, 5)},
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1", "2"])
def test_every_planted_fault_is_recorded(tmp_path: Path, workers: str) -> None:
    project = project_with(tmp_path, cases=[PLANTED], families=["control"])
    done = run_conformance(project, "run", "--only", CELL, "--family", "user", "-n", workers, variables=_secrets(tmp_path))
    assert done.returncode == 0, done.stderr
    records = records_of(project, CELL)
    found: dict[str, list[dict]] = {}
    for record in records:
        found.setdefault(record["case"], []).append(record)
    assert {case: len(many) for case, many in found.items()} == dict.fromkeys(EXPECTED, 1)
    for case, (verdict, words) in EXPECTED.items():
        record = found[case][0]
        assert (record["verdict"], words in record["reason"]) == (verdict, True), (case, record["verdict"], record["reason"])
    assert "line 9999" in found["user.prints_10000_lines"][0]["output_tail"]
    assert found["user.null_dereference"][0]["blame"]["source"] == "ctypes.string_at(0)"
    assert not [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "299"]]
    _holds_no_name_of_this_machine(project / "reports" / "results", tmp_path)


def _secrets(tmp_path: Path) -> dict[str, str]:
    return {"USER": "zaphod", "PLANTED_SECRET_HOME": str(Path.home() / "hidden"), "UV_EXTRA_INDEX_URL": ""}


def _holds_no_name_of_this_machine(results: Path, tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    names = [
        here.strip("/").replace("/", ".") + ".",
        str(tmp_path),
        str(Path(__file__).parent),
        str(Path.home()) + "/",
        f" {os.uname().nodename} ",
        "zaphod",
    ]
    for path in results.rglob("*.json*"):
        text = path.read_text(encoding="utf-8")
        assert [name for name in names if name in text] == [], path
