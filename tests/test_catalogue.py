"""The catalogue of cases: each says what it asks, where that is known from and what it catches, and the pages say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import project_with, run_conformance

from conformance import catalogue
from conformance.config import Config, builtin_cases
from conformance.configfile import load
from conformance.errors import ConfigError
from conformance.plan import CaseFile, Selection, case_files

ROOT = Path(__file__).parent.parent
CONFIG: Config = load(ROOT)
ENTRIES = {
    family: catalogue.entries(case_files(CONFIG, Selection(families=(family,))))
    for family in ("init", "fallbacks", "mps", "rope", "compile", "trace", "lowering")
}
CASES = [entry for found in ENTRIES.values() for entry in found]


@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_a_case_says_what_it_asks(entry: catalogue.Entry) -> None:
    assert entry.title.endswith(".")
    assert re.search(r"\d", entry.source), "its docstring names no release"
    assert entry.twins or entry.name.endswith("_native"), "what judges torch alone is called native; anything else catches a wrong twin"


@pytest.mark.parametrize("family", ENTRIES)
def test_the_page_of_a_family_is_current(family: str) -> None:
    text = (ROOT / "docs" / "families" / f"{family}.md").read_text(encoding="utf-8")
    assert catalogue.page(text, ENTRIES[family]) == text, f"conformance catalogue {family} --write docs/families"


def _entry_of(tmp_path: Path, source: str) -> list[catalogue.Entry]:
    path = tmp_path / "test_x.py"
    path.write_text(source, encoding="utf-8")
    return catalogue.entries([CaseFile(family="rope", path=path, root=tmp_path, case="rope.x")])


def test_an_entry_is_read_from_source(tmp_path: Path) -> None:
    source = '''
@values
@catches(forgets, Twin(refuses, "raises"), Twin(ends, verdict="crash"), grow=grow_right)
def test_growth_keeps(grow):
    """It keeps.

    owner/name#1.
    Since 2.1.
    """
'''
    twins = (("forgets", "wrong"), ("refuses", "raises"), ("ends", "crash"))
    assert _entry_of(tmp_path, source) == [catalogue.Entry("rope.growth_keeps", "It keeps.", "owner/name#1. Since 2.1.", twins)]


def test_a_page_keeps_what_was_written_by_hand() -> None:
    entry = catalogue.Entry("rope.x", "a | b", "Since 2.1.", (("w", "wrong"), ("r", "raises")))
    once = catalogue.page(f"# rope\n\nwords\n\n{catalogue.MARKER}\nold rows\n", [entry])
    assert once.startswith("# rope\n\nwords\n\n")
    assert "old rows" not in once
    assert "| `rope.x` | a \\| b | Since 2.1. | `w`, `r` (raises) |" in once
    assert catalogue.page(once, [entry]) == once


def test_a_page_without_its_marker_is_refused() -> None:
    with pytest.raises(ConfigError, match="cases"):
        catalogue.page("# rope\n", [])


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    project = project_with(tmp_path, families=["init"])
    printed = run_conformance(project, "catalogue", "init")
    assert printed.returncode == 0
    assert all(entry.name in printed.stdout for entry in ENTRIES["init"])
    missing = run_conformance(project, "catalogue", "init", "--write", str(tmp_path))
    assert (missing.returncode, "there is no page at" in missing.stderr) == (2, True)
    (tmp_path / "init.md").write_text(f"# init\n{catalogue.MARKER}\n", encoding="utf-8")
    assert run_conformance(project, "catalogue", "init", "--write", str(tmp_path)).returncode == 0
    assert (tmp_path / "init.md").read_text(encoding="utf-8").count("| `init.") == len(ENTRIES["init"])


def test_every_family_folder_is_configured() -> None:
    folders = {path.name for path in builtin_cases().iterdir() if any(path.glob("test_*.py"))} - {"control"}
    assert folders <= set(CONFIG.families)
