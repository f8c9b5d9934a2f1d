"""Journals of dead processes, and what is concluded from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.autopsy import post_mortem
from conformance.incell.scrub import Scrubber
from conformance.journals import Journals, Process
from conformance.launch import End

STACKS = """Fatal Python error: Segmentation fault

Thread 0x00007f6b453ff6c0 (most recent call first):
  File "/e/lib/python3.11/site-packages/execnet/gateway_base.py", line 534 in read
  File "/e/lib/python3.11/site-packages/execnet/gateway_base.py", line 567 in from_io

Current thread 0x00007f6b467f3b80 (most recent call first):
  File "/e/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{case}", line 3 in test_crashes
  File "/e/lib/python3.11/site-packages/_pytest/python.py", line 187 in pytest_pyfunc_call
  File "/e/lib/python3.11/site-packages/pluggy/_execution.py", line 147 in _multicall
"""


def _journal(folder: Path, name: str, *events: dict, tail: str = "") -> None:
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / f"{name}.jsonl").write_text(text + tail, encoding="utf-8")


def _start(case: str) -> dict:
    return {"event": "start", "case": case, "at": 100.0, "timeout_s": 5.0}


def test_a_start_without_an_end_names_the_culprit(tmp_path: Path) -> None:
    _journal(tmp_path, "11", _start("a"), {"event": "end", "record": {"case": "a"}}, _start("b"), {"event": "phase", "phase": "teardown"})
    _journal(tmp_path, "12", _start("c"), {"event": "end", "record": {"case": "c"}})
    _journal(tmp_path, "10", {"event": "exit", "pid": 11, "code": -11})
    journals = Journals(tmp_path)
    assert journals.update()
    assert not journals.update()
    assert set(journals.records) == {"a", "c"}
    assert [(process.pid, process.open_case, process.phase) for process in journals.culprits()] == [(11, "b", "teardown")]
    assert journals.exits == {11: -11}


def test_a_cut_line_is_read_when_it_is_whole_and_a_damaged_one_costs_itself(tmp_path: Path) -> None:
    _journal(tmp_path, "11", _start("a"), tail='{"event":"end","rec')
    journals = Journals(tmp_path)
    journals.update()
    assert [process.open_case for process in journals.culprits()] == ["a"]
    with (tmp_path / "11.jsonl").open("a", encoding="utf-8") as file:
        file.write('ord":{"case":"a"}}\nnot json\n' + json.dumps(_start("b")) + "\n")
    journals.update()
    assert set(journals.records) == {"a"}
    assert [process.open_case for process in journals.culprits()] == ["b"]


def test_an_import_that_never_ended_is_blamed_on_its_file(tmp_path: Path) -> None:
    _journal(tmp_path, "11", {"event": "file", "file": "/c/test_x.py", "case": "init.x"}, _start("init.x"))
    journals = Journals(tmp_path)
    journals.update()
    fields = post_mortem(journals.culprits()[0], -6, None, now=101.0, roots=(), scrub=Scrubber({}))
    assert (fields["verdict"], fields["stage"], fields["signal"]) == ("crash", "collect", "SIGABRT")
    assert fields["reason"] == "the process died of SIGABRT, while init.x was imported"


@pytest.mark.parametrize(
    ("code", "end", "verdict", "reason", "signal"),
    [
        (-11, None, "crash", "the process died of SIGSEGV, in call", "SIGSEGV"),
        (0, None, "crash", "the process ended with exit code 0, in call", None),
        (3, None, "crash", "the process ended with exit code 3, in call", None),
        (None, None, "crash", "the process ended with an exit code that nobody saw, in call", None),
        (-9, End("crash", "memory: 900 MB resident, the limit is 800 MB", "a"), "crash", "memory: 900 MB", "SIGKILL"),
        (-10, End("timeout", "did not end within 5 s", "a"), "timeout", "did not end within 5 s, in call", None),
    ],
)
def test_causes(tmp_path: Path, code: int | None, end: End | None, verdict: str, reason: str, signal: str | None) -> None:
    process = Process(pid=1, stem=tmp_path / "1", open_case="a", since=100.0, timeout_s=5.0, phase="call")
    fields = post_mortem(process, code, end, now=102.5, roots=(), scrub=Scrubber({}))
    assert (fields["verdict"], fields["signal"], fields["duration_s"]) == (verdict, signal, 2.5)
    assert reason in fields["reason"]


def test_stacks_are_cut_to_the_case_and_blame_its_line(tmp_path: Path) -> None:
    case = tmp_path / "test_it.py"
    case.write_text("import ctypes\ndef test_crashes():\n    ctypes.string_at(0)\n", encoding="utf-8")
    (tmp_path / "1.trace").write_text(STACKS.format(case=case), encoding="utf-8")
    (tmp_path / "1.output").write_text("last words\n", encoding="utf-8")
    process = Process(pid=1, stem=tmp_path / "1", open_case="a", since=100.0, timeout_s=5.0, phase="call")
    fields = post_mortem(process, -11, None, now=100.0, roots=(tmp_path,), scrub=Scrubber({"<cases>": str(tmp_path)}))
    assert fields["blame"] == {"file": "<cases>/test_it.py", "line": 3, "source": "ctypes.string_at(0)"}
    assert fields["output_tail"].startswith("last words\nFatal Python error: Segmentation fault")
    assert "pluggy" not in fields["output_tail"]
    assert "execnet" not in fields["output_tail"]
