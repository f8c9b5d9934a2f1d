"""Which torch APIs a source touches, and since when each is there."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from builders import cell, record, result
from packaging.version import Version

from conformance import apis
from conformance.apis import GUARDS, RECORDING, first_releases, merged, recorded, touched
from conformance.artifacts import Record
from conformance.gate import judge
from conformance.report import build

ROOT = Path(__file__).parent.parent

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import sdpa_kernel as kernel


def attend(q, k, v, model, state):
    x = F.rms_norm(q, (4,))
    model.load_state_dict(state, assign=True)
    with kernel([]):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True), nn.Linear(2, 2), torch.relu(x)
"""


def _touched(tmp_path: Path, lowest: str, source: str = SOURCE) -> dict[str, apis.Touch]:
    path = tmp_path / "net.py"
    path.write_text(source, encoding="utf-8")
    return {touch.name: touch for touch in touched([path], lowest).touches}


def test_newer_apis_are_named_with_their_line(tmp_path: Path) -> None:
    found = _touched(tmp_path, "2.0.1")
    assert list(found) == [
        "torch.nn.Module.load_state_dict(assign)",
        "torch.nn.attention.sdpa_kernel",
        "torch.nn.functional.rms_norm",
        "torch.nn.functional.scaled_dot_product_attention(enable_gqa)",
    ]
    norm = found["torch.nn.functional.rms_norm"]
    assert (norm.line, norm.source, norm.guard) == (9, "x = F.rms_norm(q, (4,))", "rms_norm")


def test_what_the_lowest_release_has_is_not_named(tmp_path: Path) -> None:
    assert list(_touched(tmp_path, "2.4.1")) == ["torch.nn.functional.scaled_dot_product_attention(enable_gqa)"]
    assert _touched(tmp_path, "2.10.0") == {}


def test_other_libraries_and_broken_files_are_passed_over(tmp_path: Path) -> None:
    assert _touched(tmp_path, "1.13.1", "import numpy as torch_like\ntorch_like.rms_norm\n") == {}


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def broken(:\n", encoding="utf-8")
    read = touched([broken], "1.13.1")
    assert (read.touches, list(read.unread)) == ([], [broken])
    told = apis.lines(read, tmp_path, "1.13.1")
    assert told[0] == "nothing that is newer than torch 1.13.1"
    assert told[1].startswith("not read: broken.py: ")


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("torch.compile", "2.0.1"),
        ("torch.nn.Module.load_state_dict(assign)", "2.1.2"),
        ("torch.nn.functional.rms_norm", "2.4.1"),
        ("torch.optim.Muon", "2.9."),
    ],
)
def test_first_releases_are_those_of_the_release_notes(name: str, since: str) -> None:
    assert first_releases()[name].startswith(since)


def test_a_name_stays_in_its_first_release_whatever_the_order() -> None:
    made: apis.Table = {}
    for release, names in {"2.10.0": ["a", "b", "c"], "1.13.1": ["a"], "2.9.1": ["a", "b"]}.items():
        made = merged(made, release, names)
    assert made == {"1.13.1": ["a"], "2.9.1": ["b"], "2.10.0": ["c"]}


def test_a_keyword_that_was_taken_untold_before_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "2.0.1": ["torch.f", "torch.f(?)", "torch.g"],
        "2.1.2": ["torch.f(old)", "torch.g(new)"],
        "2.2.2": ["torch.h", "torch.h(k)", "torch.h(?)"],
    }
    monkeypatch.setattr(apis, "stored", lambda: table)
    assert first_releases.__wrapped__() == {**apis._BUILTIN_KEYWORDS, "torch.g(new)": "2.1.2", "torch.h": "2.2.2", "torch.h(k)": "2.2.2"}


def test_guards_that_fill_a_gap_exist() -> None:
    exported = (ROOT / "conformance" / "guards" / "__init__.py").read_text(encoding="utf-8")
    assert all(f'"{guard}"' in exported for guard in GUARDS.values())


def _called(**sites: str) -> Record:
    return {"verdict": "pass", "observations": {name: {"kind": "text", "value": site} for name, site in sites.items()}}


NORM, ATTENTION = "torch.nn.functional.rms_norm", "torch.nn.functional.scaled_dot_product_attention"


def test_what_was_called_is_told_with_its_releases_and_line() -> None:
    old, new = (
        _called(**{ATTENTION: "<project>/net.py:8: attend(q)"}),
        _called(**{NORM: "<project>/net.py:9: norm(q)", ATTENTION: "x.py:3: a"}),
    )
    found = {touch.name: touch for touch in recorded({Version("2.13.0"): new, Version("2.1.2"): old}, "1.13.1")}
    assert (found[ATTENTION].called_on, str(found[ATTENTION].file), found[ATTENTION].line) == (("2.1.2", "2.13.0"), "x.py", 3)
    assert (found[NORM].called_on, str(found[NORM].file), found[NORM].source) == (("2.13.0",), "net.py", "norm(q)")
    assert [touch.name for touch in recorded({Version("2.13.0"): new}, "2.1.2")] == [NORM]


def test_an_api_that_both_ways_know_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    called = recorded(
        {Version("2.13.0"): _called(**{NORM: "<project>/net.py:9: norm(q)", "torch.nn.RMSNorm": "lib.py:1: RMSNorm(4)"})}, "2.0.1"
    )
    told = "\n".join(apis.lines(touched([path], "2.0.1").with_recorded(called), tmp_path, "2.0.1"))
    assert f"{NORM}: since 2.4.1, called on 2.13.0\n    net.py:9: x = F.rms_norm(q, (4,))" in told
    assert told.count(f"{NORM}:") == 1
    assert "torch.nn.RMSNorm: since 2.4.1, called on 2.13.0\n    lib.py:1: RMSNorm(4)" in told
    assert "torch.nn.attention.sdpa_kernel: since 2.3.1\n" in told


def test_a_keyword_that_came_with_its_function_is_not_told_beside_it(tmp_path: Path) -> None:
    source = "import torch.nn.functional as F\nF.rms_norm(x, normalized_shape=(4,), eps=1e-6)\n"
    assert list(_touched(tmp_path, "2.0.1", source)) == [NORM]


def test_the_page_of_a_model_has_what_it_called(tmp_path: Path) -> None:
    case, called = f"{RECORDING}[net]", {NORM: {"kind": "text", "value": "<project>/net.py:9: norm(q)"}}
    old = record("2.1.2", case, "raises", subject="net", family="fallbacks")
    new = record("2.13.0", case, subject="net", family="fallbacks", observations=called)
    found = result((cell("2.1.2"), [old]), (cell("2.13.0"), [new]))
    build(found, [], judge(found, [], date(2026, 12, 1)), tmp_path)
    html = (tmp_path / "site" / "subjects" / "net.html").read_text(encoding="utf-8").replace("<wbr>", "")
    page = re.sub(r"<[^>]+>|\s+", " ", html)
    assert re.search(r"rms_norm +2\.4\.1 +2\.13\.0 +net\.py:9: norm\(q\) +conformance\.guards\.rms_norm", page)
