"""Bytecode of an environment: left for what was imported from there, and for nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from conformance.incell import bytecode


def _imported(monkeypatch: pytest.MonkeyPatch, path: Path) -> Path:
    """A module of that file, imported without a trace; where its bytecode belongs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("answer = 42\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    monkeypatch.setitem(sys.modules, path.stem, importlib.util.module_from_spec(spec))
    return Path(importlib.util.cache_from_source(str(path)))


def test_what_the_environment_holds_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = _imported(monkeypatch, tmp_path / "env" / "lib" / "a_package_of_the_environment.py")
    own = _imported(monkeypatch, tmp_path / "project" / "a_model_of_the_user.py")
    broken = _imported(monkeypatch, tmp_path / "env" / "lib" / "a_file_that_changed.py")
    (tmp_path / "env" / "lib" / "a_file_that_changed.py").write_text("def (", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    bytecode.leave()
    assert (installed.is_file(), own.exists(), broken.exists()) == (True, False, False)
    installed.write_bytes(b"kept")
    bytecode.leave()
    assert installed.read_bytes() == b"kept"
