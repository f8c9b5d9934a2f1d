"""`expect --tighten`: an entry says no more than what was measured, and nothing else of the file changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import ConfigError
from conformance.expectation_bounds import tighten
from conformance.expectations import load
from conformance.results import ResultSet
from tests.builders import cell, grid, record, result
from tests.test_expectations import entry

BOUND = '{name = "breaks", bound = 4, better = "lower"}  # seen in 2.4'


def file(folder: Path, *entries: str) -> Path:
    path = folder / "expectations.toml"
    path.write_text("# by hand\n\n" + "\n\n# between\n".join(entries) + "\n", encoding="utf-8")
    return path


def case(letters: str, releases: tuple[str, ...] = ("2.8.0", "2.9.1", "2.10.0", "2.11.0")) -> ResultSet:
    verdicts = {"p": "pass", "w": "wrong", "m": "missing"}
    return grid({"init.x": {release: verdicts[letter] for release, letter in zip(releases, letters)}})


@pytest.mark.parametrize(
    ("torch", "letters", "narrowed"),
    [
        ("", "wwpp", "<2.10"),
        ("<2.12", "wwpp", "<2.10"),
        (">=2.1,<2.12", "wwwp", "<2.11,>=2.1"),
        ("", "wpww", "!=2.9.*"),
        (">=2.1", "pwww", "!=2.8.*,>=2.1"),
        ("", "pwwp", "!=2.8.*,<2.11"),
    ],
)
def test_releases_that_pass_are_left_out(tmp_path: Path, torch: str, letters: str, narrowed: str) -> None:
    path = file(tmp_path, entry(**({"torch": f'"{torch}"'} if torch else {})))
    lines = tighten(path, case(letters))
    (found,) = load(path)
    assert str(found.torch) == narrowed
    assert lines == [f'entry 1: init.x: torch = "{narrowed}"']
    assert tighten(path, case(letters)) == []


def bounded(value: int) -> ResultSet:
    seen = {"breaks": {"kind": "number", "value": value, "better": "lower"}}
    return result((cell("2.9.1"), [record("2.9.1", "init.x", "wrong", observations=seen)]))


def test_a_bound_moves_to_the_number_that_was_seen(tmp_path: Path) -> None:
    path = file(tmp_path, entry(observation=BOUND))
    before = path.read_text(encoding="utf-8")
    assert tighten(path, bounded(2)) == ["entry 1: init.x: bound = 2"]
    assert path.read_text(encoding="utf-8") == before.replace("bound = 4", "bound = 2")


@pytest.mark.parametrize("found", [case("wwww"), case("pppp"), case("wwmm"), ResultSet()], ids=["holds", "spent", "missing", "nothing"])
def test_nothing_is_tightened_that_holds_or_is_spent(tmp_path: Path, found: ResultSet) -> None:
    path = file(tmp_path, entry())
    before = path.read_bytes()
    assert (tighten(path, found), path.read_bytes()) == ([], before)


def test_other_entries_and_comments_stay(tmp_path: Path) -> None:
    path = file(tmp_path, entry(case='"init.y"'), entry(torch="'>=2.1'"), entry(case='"init.x*"', device='"mps"'))
    before = path.read_text(encoding="utf-8")
    assert len(tighten(path, case("wwpp"), ["init.x"])) == 1
    assert path.read_text(encoding="utf-8") == before.replace(
        "'>=2.1'", '"<2.10,>=2.1"' if "<2.10,>=2.1" in path.read_text() else '">=2.1,<2.10"'
    )
    assert tighten(path, case("wwpp"), ["init.z"]) == []


def test_a_layout_that_cannot_be_followed_leaves_the_file_alone(tmp_path: Path) -> None:
    path = file(tmp_path, entry(torch='""">=2.1"""'))
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"edit entries \[1\] by hand"):
        tighten(path, case("wwpp"))
    assert path.read_bytes() == before
