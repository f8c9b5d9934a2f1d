"""Comparisons: specifiers that hold exactly where a case passes, and classes of equal bits."""

from __future__ import annotations

import itertools

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance.compare import basis, changes, classes, intervals, measured_range, ranges, spans, stated, worsened
from conformance.incell.verdicts import Verdict

LETTERS = {"p": Verdict.PASS, "w": Verdict.WRONG, "u": Verdict.UNSUPPORTED, "e": Verdict.ERROR, "m": Verdict.MISSING, ".": None}
RELEASES = ("2.0.1", "2.1.2", "2.9.1", "2.10.0", "2.11.0")


def outcomes(text: str, releases: tuple[str, ...] = RELEASES) -> dict[Version, Verdict | None]:
    return {Version(release): LETTERS[letter] for release, letter in zip(releases, text, strict=False)}


@pytest.mark.parametrize(
    ("measured", "expected", "range_"),
    [
        ("ppppp", ">=2.0", "tested 2.0.1 to 2.11.0"),
        ("wpppp", ">=2.1", "tested 2.0.1 to 2.11.0"),
        ("uppwp", ">=2.1, !=2.10.*", "tested 2.0.1 to 2.11.0"),
        ("pppww", ">=2.0, <2.10", "tested 2.0.1 to 2.11.0"),
        ("pwpww", ">=2.0, !=2.1.*, <2.10", "tested 2.0.1 to 2.11.0"),
        ("wwpww", "==2.9.*", "tested 2.0.1 to 2.11.0"),
        ("wwwwp", ">=2.11", "tested 2.0.1 to 2.11.0"),
        ("wwwww", "none", "tested 2.0.1 to 2.11.0"),
        ("p", "==2.0.*", "tested 2.0.1"),
        ("w", "none", "tested 2.0.1"),
        ("", "unknown", "not measured"),
        (".em..", "unknown", "not measured"),
        ("pp.pp", ">=2.0", "tested 2.0.1 to 2.11.0, nothing from 2.9.1"),
        ("pppp.", ">=2.0, <2.11", "tested 2.0.1 to 2.10.0, nothing from 2.11.0"),
        ("epppp", ">=2.1", "tested 2.1.2 to 2.11.0, nothing from 2.0.1"),
    ],
)
def test_intervals(measured: str, expected: str, range_: str) -> None:
    assert intervals(outcomes(measured)) == expected
    assert measured_range(outcomes(measured)) == range_


TEN = tuple(f"2.{minor}.0" for minor in range(10))


@pytest.mark.parametrize(
    ("measured", "said", "beside"),
    [
        ("pppppppppp", ">=2.0", "tested 2.0.0 to 2.9.0"),
        ("p...p....p", "on 2.0.0, 2.4.0, 2.9.0", "the only three measured"),
        ("p...w....p", "on 2.0.0, 2.9.0", "tested 2.0.0, 2.4.0, 2.9.0 alone"),
        ("wpp.....pp", "on 2.1.0, 2.2.0, 2.8.0, 2.9.0", "tested 2.0.0, 2.1.0, 2.2.0, 2.8.0, 2.9.0 alone"),
        ("w........w", "none", "tested 2.0.0, 2.9.0 alone"),
        ("pp.ppp...p", ">=2.0", "tested 2.0.0 to 2.9.0, nothing from 4 between"),
        (".....ppp.p", ">=2.5", "tested 2.5.0 to 2.9.0, nothing from 2.8.0"),
        ("ppp.......", ">=2.0, <2.3", "tested 2.0.0 to 2.2.0"),
    ],
)
def test_what_nobody_measured_is_not_claimed_in_a_sentence(measured: str, said: str, beside: str) -> None:
    found = outcomes(measured, TEN)
    assert (stated(found), basis(found)) == (said, beside)


#: Several patches of one minor, pre-releases and a nightly among them.
MIXED = ("2.9.0", "2.9.1", "2.10.0", "2.11.0rc1", "2.11.0", "2.12.0.dev20261101")


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("pwpppp", ">=2.9.0, !=2.9.1"),
        ("wpwwww", "==2.9.1"),
        ("ppwwww", "==2.9.*"),
        ("wwwppp", ">=2.11.0rc1"),
        ("wwpwpp", ">=2.10, !=2.11.0rc1"),
        ("ppwppw", ">=2.9, !=2.10.*, <=2.11.0"),
    ],
)
def test_exact_releases_are_named_where_a_minor_disagrees(letters: str, expected: str) -> None:
    assert intervals(outcomes(letters, MIXED)) == expected


@pytest.mark.parametrize("releases", [RELEASES, MIXED])
def test_ranges_hold_exactly_for_what_was_chosen(releases: tuple[str, ...]) -> None:
    versions = [Version(release) for release in releases]
    for letters in itertools.product((True, False), repeat=len(versions)):
        chosen = {version for version, taken in zip(versions, letters) if taken}
        found = [SpecifierSet(each) for each in ranges(chosen, versions)]
        assert {version for version in versions if any(each.contains(version, prereleases=True) for each in found)} == chosen


def test_ranges_are_closed_and_short() -> None:
    versions = [Version(release) for release in RELEASES]
    assert ranges(versions[1:3], versions) == [">=2.1, <2.10"]
    assert ranges([versions[0], versions[4]], versions) == ["==2.0.*", "==2.11.*"]
    assert ranges([], versions) == []


@pytest.mark.parametrize("releases", [RELEASES, MIXED])
def test_an_interval_holds_exactly_where_it_passes(releases: tuple[str, ...]) -> None:
    for letters in itertools.product("pw.", repeat=len(releases)):
        measured = outcomes("".join(letters), releases)
        text = intervals(measured)
        if text not in ("none", "unknown"):
            specifier = SpecifierSet(text)
            ran = {version for version, verdict in measured.items() if verdict is not None}
            passing = {version for version in ran if specifier.contains(version, prereleases=True)}
            assert passing == {version for version, verdict in measured.items() if verdict is Verdict.PASS}, (letters, text)


def test_spans_join_neighbours_as_measured() -> None:
    versions = [Version(release) for release in RELEASES]
    assert spans(versions[1:3], versions) == [">=2.1.2,<=2.9.1"]
    assert spans([versions[0], *versions[3:]], versions) == ["==2.0.1", ">=2.10.0,<=2.11.0"]
    assert spans([], versions) == []


def digests(**runs: str) -> dict[Version, str | None]:
    return {Version(release.replace("_", ".")[1:]): digest or None for release, digest in runs.items()}


def test_bits_that_change_once() -> None:
    (change,) = changes(digests(v2_12_1="new", v2_9_1="old", v2_11_0="old", v2_10_0=""))
    assert str(change) == "changes its bits at 2.12.1 (last seen equal: 2.11.0)"
    assert str(change.before) == "2.9.1 to 2.11.0"
    assert str(change.at) == "2.12.1"


def test_the_same_bits_later_have_the_same_label() -> None:
    values = digests(v2_1="a", v2_2="b", v2_10="a", v2_11="c")
    assert [(run.label, str(run)) for run in classes(values)] == [("A", "2.1"), ("B", "2.2"), ("A", "2.10"), ("C", "2.11")]
    assert [str(change) for change in changes(values)] == [
        "changes its bits at 2.2 (last seen equal: 2.1)",
        "goes back to bits A at 2.10 (last seen different: 2.2)",
        "changes its bits at 2.11 (last seen equal: 2.10)",
    ]


def test_pre_releases_come_before_their_release() -> None:
    values = digests(v2_11_0="b", v2_11_0rc1="b", v2_10_0="a", v2_12_0_dev1="c")
    assert [str(run) for run in classes(values)] == ["2.10.0", "2.11.0rc1 to 2.11.0", "2.12.0.dev1"]


def test_one_cell_or_none_changes_nothing() -> None:
    assert (changes({}), classes({})) == ([], [])
    assert changes(digests(v2_1="a")) == []
    assert [run.label for run in classes({Version(f"1.{index}"): str(index) for index in range(28)})][-3:] == ["Z", "AA", "AB"]


def test_numbers_have_a_direction_or_none() -> None:
    assert worsened(3.0, 4.0, "lower") is True
    assert worsened(3.0, 4.0, "higher") is False
    assert worsened(3.0, 3.0, "lower") is None
    assert worsened(3.0, 4.0, None) is None


def test_errors_have_slack_and_counts_have_none() -> None:
    assert worsened(1.05e-6, 1.0e-6, "lower", slack=0.1) is None
    assert worsened(1.0e-6, 1.3e-6, "lower", slack=0.1) is True
    assert worsened(100.0, 101.0, "lower", slack=0.1) is True
    assert worsened(0.5, float("inf"), "lower", slack=0.1) is True
    assert worsened(0.5, float("nan"), "lower") is True
    assert worsened(float("nan"), 0.5, "lower") is False
