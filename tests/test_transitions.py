"""What changed at each release, and the neighbours of every break, on grids made by hand."""

from __future__ import annotations

import pytest
from packaging.version import Version

from conformance.columns import Group, groups
from conformance.results import ResultSet
from conformance.transitions import edges, histories, transitions
from tests.builders import cell, collected, grid, record, result

LETTERS = {"p": "pass", "w": "wrong", "r": "raises", "u": "unsupported", "e": "error", "m": "missing"}
RELEASES = ("2.1.2", "2.9.1", "2.10.0", "2.11.0")


def made(rows: dict[str, str], releases: tuple[str, ...] = RELEASES) -> Group:
    """One group from case -> a letter per release; a blank leaves the case out there."""
    return only(grid({case: {release: LETTERS[x] for release, x in zip(releases, text) if x != " "} for case, text in rows.items()}))


def only(found: ResultSet) -> Group:
    (group,) = groups(found)
    return group


def told(group: Group) -> list[tuple[str, str, list[str], list[str]]]:
    """Per transition: release, previous, cases that got worse, cases that got better."""
    return [
        (
            str(each.version),
            str(each.previous),
            [case for cause in each.difference.worse for case in cause.cases],
            [case for cause in each.difference.better for case in cause.cases],
        )
        for each in transitions(group)
    ]


def test_each_release_is_compared_with_the_one_before_it() -> None:
    assert told(made({"init.a": "ppwp", "init.b": "rppp"})) == [
        ("2.9.1", "2.1.2", [], ["init.b"]),
        ("2.10.0", "2.9.1", ["init.a"], []),
        ("2.11.0", "2.10.0", [], ["init.a"]),
    ]


@pytest.mark.parametrize("hole", ["e", "m", " "])
def test_a_release_that_says_nothing_of_a_case_is_passed_over(hole: str) -> None:
    group = made({"init.a": f"pp{hole}w", "init.b": "pppp"})
    assert told(group)[-1] == ("2.11.0", "2.10.0", [], [])
    step = transitions(group)[-1]
    (move,) = step.earlier[0].moves
    assert (str(move.before.version), str(move.after.version), move.worse) == ("2.9.1", "2.11.0", True)
    assert (step.empty, step.difference.compared) == (False, 1)
    assert transitions(group)[1].empty


def test_a_number_of_a_release_before_the_neighbour_is_not_compared() -> None:
    seen = [{"error": {"kind": "number", "value": value, "better": "lower"}} for value in (1.0, 9.0)]
    middle = [record("2.10.0", "init.other")]
    cells = [(cell("2.9.1"), [record("2.9.1", "init.a", observations=seen[0])]), (cell("2.10.0"), middle)]
    found = result(*cells, (cell("2.11.0"), [record("2.11.0", "init.a", observations=seen[1])]))
    assert [each.difference.numbers for each in transitions(only(found))] == [[], []]


def test_a_case_that_one_side_did_not_measure() -> None:
    steps = [each.difference for each in transitions(made({"init.a": "pppp", "init.new": "  pp", "init.old": "pp  "}))]
    assert [(each.appeared, each.vanished) for each in steps] == [([], []), (["init.new"], ["init.old"]), ([], [])]
    again = [each.difference for each in transitions(made({"init.a": "pppp", "init.b": "p pp"}))]
    assert [(each.appeared, each.vanished) for each in again] == [([], ["init.b"]), (["init.b"], []), ([], [])]


def test_a_file_that_was_not_collected_takes_no_case_away() -> None:
    old, new = cell("2.9.1"), cell("2.10.0")
    found = result((old, [record(old, "init.x")]), (new, [record(new, "init.file", "crash", stage="collect", reason="segfault")]))
    found.cells[0].collected["cases"][0]["file_case"] = "init.file"
    found.cells[1].collected.update(cases=[], files=[{"case": "init.file", "family": "init"}])
    (step,) = transitions(only(found))
    assert (step.difference.vanished, step.difference.appeared) == ([], ["init.file"])


def test_one_cell_or_none_has_no_transition() -> None:
    assert transitions(made({"init.a": "w"})) == []
    assert groups(ResultSet()) == []
    assert transitions(Group("cpu", "linux_x86_64", "")) == []


def test_pre_releases_come_before_their_release_and_a_nightly_before_the_next() -> None:
    releases = ("2.11.0", "2.11.0rc1", "2.10.0", "2.12.0.dev20261101")
    assert [(version, worse, better) for version, _, worse, better in told(made({"init.a": "pwpw"}, releases))] == [
        ("2.11.0rc1", ["init.a"], []),
        ("2.11.0", [], ["init.a"]),
        ("2.12.0.dev20261101", ["init.a"], []),
    ]


def test_of_two_cells_of_one_release_the_worse_speaks() -> None:
    cells = [cell("2.9.1"), cell("2.10.0"), cell("2.10.0", python="3.10")]
    verdicts = ["pass", "error", "wrong"]
    group = only(result(*((where, [record(where, "init.a", verdict)]) for where, verdict in zip(cells, verdicts))))
    assert [outcome.verdict.value for outcome in histories(group)["init.a"]] == ["pass", "wrong"]


def test_devices_have_transitions_of_their_own() -> None:
    cells = [cell("2.9.1"), cell("2.10.0"), cell("2.10.0", "mps", platform="macos_arm64")]
    found = result(*((where, [record(where, "init.a", verdict)]) for where, verdict in zip(cells, ["pass", "pass", "wrong"])))
    assert [(group.device, told(group)) for group in groups(found)] == [("cpu", [("2.10.0", "2.9.1", [], [])]), ("mps", [])]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("pppp", []),
        ("ppww", ["last good 2.9.1, first bad 2.10.0"]),
        ("pwwp", ["last good 2.1.2, first bad 2.9.1", "last bad 2.10.0, first good 2.11.0"]),
        ("pewr", ["last good 2.1.2, first bad 2.10.0 (nothing known of 2.9.1)"]),
        ("uuup", ["last bad 2.10.0, first good 2.11.0"]),
        ("w", []),
        ("ee", []),
    ],
)
def test_the_neighbours_of_a_break(outcomes: str, expected: list[str]) -> None:
    group = made({"init.a": outcomes})
    planned = [column.version for column in group.columns]
    assert [str(edge) for edge in edges(histories(group).get("init.a", []), planned)] == expected


def test_a_break_names_its_last_good_release() -> None:
    group = made({"init.a": "ppww"})
    (edge,) = edges(histories(group)["init.a"])
    assert edge.broke
    assert edge.before.version == Version("2.9.1")
    assert collected([edge.after.record])["cases"][0]["case"] == "init.a"
