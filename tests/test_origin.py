"""Where the tool came from, by pip's record and by git, and the workflow that is written with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, project_with, run_here

from conformance import origin
from conformance.errors import ConfigError
from conformance.origin import Origin, of_address

COMMIT = "1a2b3c4d5e6f"


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/someone/torch-conformance",
        "https://github.com/someone/torch-conformance.git",
        "https://name:token@github.com/someone/torch-conformance.git",
        "ssh://git@github.com/someone/torch-conformance/",
        "git@github.com:someone/torch-conformance.git",
        "git+https://github.com/someone/torch-conformance",
    ],
)
def test_addresses_that_git_and_pip_write_are_understood(address: str) -> None:
    assert of_address(address, COMMIT) == Origin("someone/torch-conformance", COMMIT)


@pytest.mark.parametrize("address", ["", "https://gitlab.com/a/b", "/home/me/torch-conformance", "https://github.com.evil.org/a/b", "x"])
def test_other_addresses_are_none(address: str) -> None:
    assert of_address(address, COMMIT) is None
    assert of_address("https://github.com/a/b", "") is None


def test_what_is_named_is_taken() -> None:
    assert origin.origin("me/fork.of@v0.1.0") == Origin("me/fork.of", "v0.1.0")
    for wrong in ("me/fork", "me@v1", "https://github.com/me/fork@v1", "me/fork@v1 x"):
        with pytest.raises(ConfigError, match="is no repository with a commit"):
            origin.origin(wrong)


def _git(folder: Path, *words: str) -> str:
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *words], cwd=folder, env={**os.environ, **identity}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_clone_names_its_origin_and_commit_and_a_vendored_copy_does_not(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "conformance", clone / "conformance", ignore=shutil.ignore_patterns("__pycache__", "cases", "data"))
    shutil.copytree(clone / "conformance", clone / "lib" / "conformance")
    _git(clone, "init", "-q")
    _git(clone, "commit", "-q", "--allow-empty", "-m", "x")
    _git(clone, "remote", "add", "origin", "git@github.com:someone/torch-conformance.git")
    told = "from conformance.origin import origin\nprint(*vars(origin()).values())"
    for home, code in ((clone, 0), (clone / "lib", 1)):
        variables = {**os.environ, "PYTHONPATH": str(home)}
        done = subprocess.run([sys.executable, "-c", told], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        if not code:
            assert done.stdout.split() == ["someone/torch-conformance", _git(clone, "rev-parse", "HEAD")]


def test_what_pip_recorded_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "torch_conformance-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: torch-conformance\nVersion: 0.1.0\n", encoding="utf-8")
    record = {"url": "https://github.com/someone/torch-conformance", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    (folder / "direct_url.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert origin.origin() == Origin("someone/torch-conformance", COMMIT)


def test_a_workflow_is_written_once_with_what_was_asked(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    words = ("new-workflow", "net.py:build", "--torch", '>=2.4,!="2.6"', "--device", "cpu,mps", "--tool", f"someone/fork@{COMMIT}")
    done = run_here(project, *words)
    assert done.returncode == 0, done.stderr
    written = yaml.load((project / ".github" / "workflows" / "torch.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    job = written["jobs"]["torch"]
    assert job["uses"] == f"someone/fork/.github/workflows/cells.yml@{COMMIT}"
    assert job["with"] == {
        "tool": f"git+https://github.com/someone/fork@{COMMIT}",
        "subject": "net.py:build",
        "torch": '>=2.4,!="2.6"',
        "devices": "cpu,mps",
    }
    again = run_here(project, *words)
    assert again.returncode == 2
    assert "there is a workflow" in again.stderr
