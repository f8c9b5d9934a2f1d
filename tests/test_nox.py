"""`from conformance.nox import matrix` in somebody's own noxfile, with cases of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, project_with, records_of

from conformance import distributions
from conformance.cells import this_platform

CELL = f"torch2.13.0-py3.11-cpu-{this_platform()}"
CASES = '''
import torch

from conformance.incell import catches


def norm(x):
    return x / x.pow(2).mean(-1, keepdim=True).sqrt()


def norm_by_sum(x):
    return x / x.pow(2).sum(-1, keepdim=True).sqrt()


@catches(norm_by_sum, norm=norm)
def test_norm(norm, device, observe):
    """A normed row has a mean square of one."""
    square = float(norm(torch.arange(1.0, 9.0, device=device)).pow(2).mean())
    observe("mean_square", square)
    assert abs(square - 1) < 1e-5
'''


def _nox(project: Path, noxfile: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "noxfile.py").write_text(noxfile, encoding="utf-8")
    command = [sys.executable, "-m", "nox", *arguments]
    return subprocess.run(command, cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("call", "sessions"), [("matrix()", {"matrix", "cell", "report"}), ("matrix(subject='net:build')", {"matrix", "cell"})]
)
def test_two_lines_give_the_sessions(tmp_path: Path, call: str, sessions: set[str]) -> None:
    done = _nox(tmp_path, f"from conformance.nox import matrix\n{call}\n", "--list")
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^[*-] (\S+)", done.stdout, re.M)
    assert {name.partition("(")[0] for name in listed} == sessions
    assert f"cell({CELL})" in listed


def test_the_tool_is_installed_from_where_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "torch_conformance-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-conformance\nVersion: 1.2\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert distributions.itself() == ("torch-conformance==1.2",)
    direct = folder / "direct_url.json"
    direct.write_text('{"url": "file:///a/b%20c", "dir_info": {"editable": true}}', encoding="utf-8")
    assert distributions.itself() == ("-e", "/a/b c")
    direct.write_text('{"url": "file:///a/tool.whl", "archive_info": {}}', encoding="utf-8")
    assert distributions.itself() == ("torch-conformance @ file:///a/tool.whl",)


@pytest.mark.slow
def test_own_cases_become_records_of_a_cell(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test_norms.py").write_text(CASES, encoding="utf-8")
    project_with(tmp_path, cases=[tmp_path / "mine"])
    noxfile = "from conformance.nox import matrix\nmatrix()\n"
    done = _nox(tmp_path, noxfile, "--default-venv-backend", "uv", "-s", f"cell({CELL})", "--", "-n", "0")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (record,) = records_of(tmp_path, CELL)
    assert (record["case"], record["family"], record["verdict"]) == ("user.norm", "user", "pass")
    assert record["observations"]["mean_square"]["value"] == pytest.approx(1, abs=1e-5)
    assert (tmp_path / "reports" / "site" / "index.html").is_file()
