from __future__ import annotations

import pytest

from conformance import selectors
from conformance.errors import ConfigError

RELEASES = ["2.0.1", "2.1.2", "2.9.1", "2.10.0", "2.11.0"]
CELLS = [f"torch{version}-py3.11-{device}-linux_x86_64" for version in RELEASES for device in ("cpu", "meta")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (">=2.9", ["2.9.1", "2.10.0", "2.11.0"]),
        ("==2.1.*", ["2.1.2"]),
        (">=2.0,<2.10", ["2.0.1", "2.1.2", "2.9.1"]),
        ("2.10.0,2.1.2", ["2.1.2", "2.10.0"]),
        ("~=2.9", ["2.9.1", "2.10.0", "2.11.0"]),
    ],
)
def test_releases_by_specifier_or_exact_list(text: str, expected: list[str]) -> None:
    assert selectors.select_releases(text, RELEASES) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2.1*", "globs are for ids, they take 2.10 for 2.1"),
        (">=2.1,2.4.1", "not a mix"),
        ("2.1.3", "close: 2.1.2"),
        (">=3", "no release of the configuration is in that range"),
        (">=>2", "no version specifier"),
        ("", "give one specifier"),
        ("2.x", "is no version"),
    ],
)
def test_wrong_releases_are_told(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        selectors.select_releases(text, RELEASES)
    assert words in str(caught.value)


def test_a_glob_on_ids_takes_2_10_for_2_1_and_braces_do_not() -> None:
    assert len(selectors.select(["torch2.1*-cpu-*"], CELLS, "cell")) == 3
    assert len(selectors.select(["torch2.{1,9}.*-cpu-*"], CELLS, "cell")) == 2


def test_brackets_in_case_ids_are_literal() -> None:
    assert selectors.matches("trace.x[gpt-*]", "trace.x[gpt-batch]")
    assert not selectors.matches("trace.x[gpt]", "trace.xg")
    assert selectors.matches("trace.x[*]", "trace.x[a]")


def test_nested_braces_multiply() -> None:
    assert sorted(selectors.expand_braces("a{b{c,d},e}f")) == ["abcf", "abdf", "aef", "aef"]


def test_no_match_names_the_close_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        selectors.select(["torch2.9.2-py3.11-cpu-linux_x86_64"], CELLS, "cell")
    assert "torch2.9.1-py3.11-cpu-linux_x86_64" in str(caught.value)


def test_an_exact_id_comes_before_the_glob_that_it_also_is() -> None:
    names = ["user.g[*]", "user.g[a]", "user.h"]
    assert selectors.chosen(["user.g[*]"], names) == {"user.g[*]"}
    assert selectors.chosen(["user.g*"], names) == {"user.g[*]", "user.g[a]"}


def test_a_minor_release_is_its_one_known_patch() -> None:
    known = ["2.1.2", "2.9.0", "2.9.1", "2.10.0"]
    assert selectors.select_releases("2.10,2.1", known) == ["2.1.2", "2.10.0"]
    with pytest.raises(ConfigError, match=r"'2\.9' is no release of the configuration; close: "):
        selectors.select_releases("2.9", known)


def test_an_error_says_how_many_names_it_leaves_out() -> None:
    assert selectors.close_matches("zzz", [f"name{i}" for i in range(11)]).endswith("name7 and 3 more")
