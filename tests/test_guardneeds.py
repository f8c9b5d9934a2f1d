"""Guards: what the table of ways says is true of the guards and cases that there are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from conformance import guardneeds
from conformance.config import builtin_cases
from conformance.errors import ConfigError
from conformance.guardneeds import guards, ways
from conformance.report.sources import SourceFile, case_sources, guard_users


def _cases() -> set[str]:
    found = set()
    for path in builtin_cases().glob("*/test_*.py"):
        names = (node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
        found |= {f"{path.parent.name}.{name.removeprefix('test_')}" for name in names if name.startswith("test_")}
    return found


def test_each_way_names_a_guard_and_cases_that_there_are() -> None:
    from conformance.selectors import expand_braces

    offered, known = guards(), _cases()
    stated = ways()
    assert len(stated) > 20
    for way in stated:
        assert way.guard in offered
        for pattern in way.cases:
            assert {one.partition("[")[0] for one in expand_braces(pattern)} <= known, way


def test_guards_are_read_from_source_with_what_they_do() -> None:
    text = (Path(guardneeds.__file__).parent / "guards" / "__init__.py").read_text(encoding="utf-8")
    offered = guards()
    assert all(f'"{name}"' in text for name in offered)
    assert offered["rms_norm"].startswith("`x` `(..., C)` over its root mean square")
    assert not [name for name, what in offered.items() if not what]


def test_a_case_uses_a_guard_through_the_file_s_own_helpers_and_not_by_its_wrong_twin() -> None:
    text = (
        "from conformance.guards import rms_norm as norm, sdpa\n"
        "WAYS = {'guard': norm}\n"
        "def helper(how): return WAYS[how]\n"
        "def test_direct(): norm(1)\n"
        "def test_by_helper(): helper('guard')\n"
        "def wrong(): sdpa(1)\n"
        "@catches(wrong, right=print)\n"
        "def test_none(right): pass\n"
    )
    sources = case_sources([SourceFile("init.norms", "init/test_norms.py", text)])
    assert guard_users(sources) == {"rms_norm": ["init.by_helper", "init.direct"]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[without]]\nguard = 3\nway = 'x'\ncases = ['a']", "entry 1: write guard and way as texts"),
        ("[[without]]\nguard = 'a'\nway = 'x'\ncases = []", "entry 1"),
        ("without = [3]", "entry 1"),
        ("[[without", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, text: str | bytes | None, told: str) -> None:
    path = tmp_path / "guards.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=told):
        ways(path)
