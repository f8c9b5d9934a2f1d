"""What a project claims against what was measured: each kind of claim that does not hold is named, and what is written holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import cell, record, write_cell
from conftest import ROOT, run_here

from conformance import readme

RELEASES = ("2.4.1", "2.8.0", "2.11.0", "2.13.0")
MARKERS = "<!-- conformance badge -->\n<!-- /conformance badge -->\n\n<!-- conformance table -->\n<!-- /conformance table -->\n"


def _project(folder: Path, *, requires: str = "torch>=2.8", classifiers: tuple[str, ...] = (), text: str = "", extra: str = "") -> Path:
    listed = "".join(f'  "{each}",\n' for each in classifiers)
    lines = [
        f'[project]\nname = "net"\nversion = "1"\nrequires-python = ">=3.11"\nclassifiers = [\n{listed}]\ndependencies = ["{requires}"]',
        f"[tool.conformance.profiles]\nours = {json.dumps(RELEASES)}\n{extra}",
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    (folder / "README.md").write_text(f"# net\n\n{text}", encoding="utf-8")
    return folder


def _measured(project: Path, verdicts: dict[str, str], device: str = "cpu") -> Path:
    for release, verdict in verdicts.items():
        where = cell(release, device)
        rows = [record(where, "trace.subject_export[net]", verdict, reason=verdict), record(where, "init.subject_copies[net]")]
        write_cell(project / "reports", where, rows)
    return project


def _claims(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(project, "claims", "--profile", "ours", *arguments)


SOUND = {"2.4.1": "raises", "2.8.0": "pass", "2.11.0": "pass", "2.13.0": "pass"}


def test_what_holds_is_said_to_hold(tmp_path: Path) -> None:
    done = _claims(_measured(_project(tmp_path), SOUND))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measured to work on cpu: torch >=2.8" in done.stdout
    assert "every claim is borne out" in done.stdout


def test_a_release_that_breaks_is_named_with_its_case(tmp_path: Path) -> None:
    done = _claims(_measured(_project(tmp_path, requires="torch>=2.4"), SOUND))
    assert done.returncode == 1
    assert (
        "pyproject.toml [project] dependencies: torch>=2.4: torch ==2.4.1 on cpu is broken: trace.subject_export[net] raises" in done.stdout
    )


def test_a_release_that_nobody_measured_is_named(tmp_path: Path) -> None:
    done = _claims(_measured(_project(tmp_path), {"2.11.0": "pass", "2.13.0": "pass"}))
    assert done.returncode == 1
    assert "torch ==2.8.0 on cpu is not measured (no results)" in done.stdout


def test_a_cell_whose_cases_came_to_nothing_bears_nothing(tmp_path: Path) -> None:
    done = _claims(_measured(_project(tmp_path), {**SOUND, "2.8.0": "error"}))
    assert done.returncode == 1
    assert "torch ==2.8.0 on cpu is not measured (1 cases came to no verdict)" in done.stdout


def test_a_cell_whose_controls_are_off_bears_nothing(tmp_path: Path) -> None:
    project = _measured(_project(tmp_path), SOUND)
    write_cell(project / "reports", cell("2.8.0"), [record("2.8.0", "init.a")], controls={"ok": False, "off": ["control.raises"]})
    assert "torch ==2.8.0 on cpu is not measured (its controls are off)" in _claims(project).stdout


@pytest.mark.parametrize(
    ("classifier", "told"),
    [
        ("Environment :: GPU :: NVIDIA CUDA :: 12", "no release is measured to work on cuda"),
        ("Programming Language :: Python :: 3.13", "no cell was measured on Python 3.13 (measured: 3.11)"),
        ("Operating System :: MacOS", "no cell was measured on macos"),
    ],
)
def test_classifiers_are_claims(tmp_path: Path, classifier: str, told: str) -> None:
    project = _measured(_project(tmp_path, classifiers=(classifier,)), SOUND)
    done = _claims(project)
    assert done.returncode == 1
    assert told in done.stdout
    known = f'[tool.conformance.elsewhere]\n"{classifier}" = "tried by hand"\n'
    if not classifier.startswith("Environment"):
        _project(tmp_path, classifiers=(classifier,), extra=known)
        assert _claims(project).returncode == 0


def test_a_python_below_all_that_was_measured(tmp_path: Path) -> None:
    project = _measured(_project(tmp_path), SOUND)
    text = (project / "pyproject.toml").read_text(encoding="utf-8").replace(">=3.11", ">=3.9")
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    assert "Python 3.9, 3.10 lies below what was measured (3.11)" in _claims(project).stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("![torch](https://img.shields.io/badge/PyTorch-2.4%2B-red)", "README.md:3: badge PyTorch: 2.4+: torch ==2.4.1 on cpu is broken"),
        ("| torch | CPU | MPS |\n|---|---|---|\n| 2.8 | ✓ | no |\n| 2.11+ | ✅ | ✓ |", "README.md:6: 2.11+ on mps: torch "),
        ("| torch | CPU |\n|---|---|\n| 2.4 to 2.8 | yes |", "README.md:5: 2.4 to 2.8 on cpu: torch ==2.4.1 on cpu is broken"),
        ("![d](https://img.shields.io/badge/devices-CPU_|_XPU-red)", "README.md:3 badge devices: CPU | XPU: xpu: no release"),
    ],
)
def test_the_readme_is_a_claim(tmp_path: Path, text: str, told: str) -> None:
    done = _claims(_measured(_project(tmp_path, text=text), SOUND))
    assert done.returncode == 1
    assert told in done.stdout


def test_what_is_written_holds_and_is_written_once(tmp_path: Path) -> None:
    project = _measured(_project(tmp_path, requires="torch[opt]>=2.0; python_version > '3'", text=MARKERS), SOUND)
    done = _claims(project, "--write")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch[opt]>=2.8; python_version > '3'" in (project / "pyproject.toml").read_text(encoding="utf-8")
    text = (project / "README.md").read_text(encoding="utf-8")
    assert "| 2.13.0 | ✓ |\n| 2.11.0 | ✓ |\n| 2.8.0 | ✓ |\n| 2.4.1 | ✕ 1 failing |" in text
    assert "![torch >=2.8](https://img.shields.io/badge/torch-%3E%3D2.8-blue)" in text
    assert "written" not in _claims(project, "--write").stdout


def test_a_device_of_the_written_table_widens_no_other_claim(tmp_path: Path) -> None:
    project = _measured(_project(tmp_path, requires="torch>=2.8", text=MARKERS), SOUND)
    _measured(project, {"2.11.0": "pass"}, device="meta")
    assert _claims(project, "--write").returncode == 0
    text = (project / "README.md").read_text(encoding="utf-8")
    assert "| torch | cpu | meta |" in text
    again = _claims(project, "--write")
    assert (again.returncode, "written" in again.stdout) == (0, False), again.stdout
    assert "badge/torch-%3E%3D2.8-blue" in text
    (project / "README.md").write_text(text.replace("conformance table", "our table"), encoding="utf-8")
    assert "torch>=2.8: torch ==2.8.0, ==2.13.0 on meta is not measured" in _claims(project).stdout


def test_a_table_that_rots_is_told(tmp_path: Path) -> None:
    project = _measured(_project(tmp_path, text=MARKERS), SOUND)
    assert _claims(project, "--write").returncode == 0
    _measured(project, {"2.11.0": "wrong"})
    done = _claims(project)
    assert done.returncode == 1
    assert "README.md: the table between markers: is not what the results say" in done.stdout
    assert ": 2.11.0 on cpu: torch ==2.11.0 on cpu is broken" in done.stdout


def test_a_marker_without_its_end_is_an_error(tmp_path: Path) -> None:
    done = _claims(_measured(_project(tmp_path, text="<!-- conformance table -->\n"), SOUND))
    assert done.returncode == 2
    assert "has no <!-- /conformance table --> after it" in done.stderr


@pytest.mark.parametrize(
    ("text", "within", "outside"),
    [("2.4", "2.4.1", "2.5.0"), ("≥2.4", "2.15.0", "2.3.1"), ("2.4\N{EN DASH}2.6", "2.6.1", "2.7.0"), ("`2.4.1`", "2.4.1", "2.4.0")],
)
def test_releases_as_people_write_them(text: str, within: str, outside: str) -> None:
    (specifier,) = readme.releases_named(text)
    assert specifier.contains(within)
    assert not specifier.contains(outside)


def test_prose_names_no_release() -> None:
    assert readme.releases_named("main branch") == []
    assert len(readme.releases_named("2.1 | 2.2")) == 2


def test_the_marks_skip_where_it_was_measured_to_fail(tmp_path: Path) -> None:
    project = _measured(_project(tmp_path), SOUND)
    assert _claims(project, "--marks", str(project / "measured.py")).returncode == 0
    (project / "dist" / "torch-2.4.1.dist-info").mkdir(parents=True)
    (project / "dist" / "torch-2.4.1.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.4.1+cpu\n", encoding="utf-8")
    (project / "test_net.py").write_text(
        "from measured import is_supported, skip_unless_supported, skip_where_broken\n\n"
        '@skip_where_broken("trace.subject_export[net]")\ndef test_export(): raise AssertionError\n\n'
        '@skip_where_broken("init.subject_copies[net]")\ndef test_copies(): pass\n\n'
        '@skip_unless_supported("cpu")\ndef test_all(): raise AssertionError\n\n'
        'def test_others(): assert is_supported(torch="2.13.0+cu126") and not is_supported("cuda", torch="2.13.0")\n',
        encoding="utf-8",
    )
    variables = {**os.environ, "PYTHONPATH": str(project / "dist")}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_net.py"]
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    assert "2 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert "measured to work on cpu: >=2.8" in done.stdout


@pytest.mark.skipif(not (ROOT / "reports" / "published").is_dir(), reason="no published results are committed")
def test_this_project_claims_what_its_published_results_bear_out() -> None:
    done = run_here(ROOT, "claims", str(ROOT / "reports" / "published"))
    assert done.returncode == 0, done.stdout + done.stderr
