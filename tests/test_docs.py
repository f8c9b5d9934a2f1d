"""What the pages say exists: files that they link to, commands that they show."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from conformance.cli import _parser

PAGES = sorted(
    ROOT / name
    for name in subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    if name != "CHANGELOG.md"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    own = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in own if not (page.parent / link).exists()] == []


def test_the_commands_of_the_readme_are_commands() -> None:
    shown = re.findall(r"^(?:nox.*&& )?conformance ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    (known,) = (action.choices for action in _parser()._actions if action.choices and "plan" in action.choices)
    assert len(shown) > 8
    assert set(shown) <= set(known)
