"""Expectations: what a file may say, what an entry covers, and edits that leave all other text alone."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from conformance.cells import Cell
from conformance.errors import ConfigError
from conformance.expectation_edits import drafts, explain, prune, update
from conformance.expectations import Bound, Expectation, load, parse
from conformance.results import ResultSet
from tests.builders import cell, grid, record

TODAY = date(2026, 11, 30)
REVIEW = date(2027, 3, 1)
LINK = "https://github.com/pytorch/pytorch/issues/1"


def entry(**fields: str) -> str:
    """One entry as TOML; a field set to the empty text is left out."""
    rows = {"case": '"init.x"', "verdict": '"wrong"', "reason": '"bits moved"', "link": f'"{LINK}"', "review": "2027-03-01", **fields}
    return "\n".join(["[[expectation]]", *(f"{key} = {value}" for key, value in rows.items() if value)]) + "\n"


def only(**fields: str) -> Expectation:
    (found,) = parse(entry(**fields), "expectations.toml")
    return found


def records(result: ResultSet) -> list[dict[str, object]]:
    return [row for each in result.cells for row in each.records]


def test_an_entry_is_read_whole() -> None:
    found = only(torch='"<2.12"', device='"cpu"', observation='{name = "breaks", bound = 3, better = "lower"}')
    assert (found.case, found.verdict.value, str(found.torch), found.device) == ("init.x", "wrong", "<2.12", "cpu")
    assert (found.review, found.observation, found.number) == (REVIEW, Bound("breaks", 3.0, "lower"), 1)


@pytest.mark.parametrize(
    ("pattern", "case", "hit"),
    [
        ("init.x[a-b]", "init.x[a-b]", True),
        ("init.x[a-b]", "init.xa", False),
        ("init.x[*]", "init.x[a-b]", True),
        ("init.x[*", "init.x[a-b]", True),
        ("init.*", "init.x[a-b]", True),
        ("init.x", "init.x[a-b]", False),
        ("*.x", "trace.x", True),
        ("INIT.x", "init.x", False),
    ],
)
def test_brackets_are_literal_in_case_globs(pattern: str, case: str, hit: bool) -> None:
    assert only(case=f'"{pattern}"').covers(record("2.4.1", case, "wrong")) is hit


@pytest.mark.parametrize(
    ("specifier", "release", "hit"),
    [
        ("", "1.13.1", True),
        ("<2.12", "2.11.0", True),
        ("<2.12", "2.12.1", False),
        (">=2.2", "2.10.0", True),
        ("==2.1.*", "2.10.0", False),
        (">=2.12", "2.13.0.dev20261101", True),
    ],
)
def test_releases_are_compared_as_versions(specifier: str, release: str, hit: bool) -> None:
    assert only(torch=f'"{specifier}"').in_scope(record(release, "init.x", "wrong")) is hit


def test_device_verdict_and_bound_decide_too() -> None:
    broken = record(cell("2.4.1", "cuda"), "init.x", "wrong", observations={"breaks": {"kind": "number", "value": 4}})
    assert only().covers(broken)
    assert not only(device='"cpu"').covers(broken)
    assert only(device='"cu*"').covers(broken)
    assert not only(verdict='"raises"').covers(broken)
    assert only(observation='{name = "breaks", bound = 4, better = "lower"}').covers(broken)
    assert not only(observation='{name = "breaks", bound = 3, better = "lower"}').covers(broken)
    assert only(observation='{name = "breaks", bound = 3, better = "higher"}').covers(broken)
    assert not only(observation='{name = "other", bound = 9, better = "lower"}').covers(broken)


def test_all_mistakes_are_told_at_once() -> None:
    text = "\n".join(
        [
            'expectaton = "x"',
            entry(),
            entry(verdict='"wrnog"', torch='"2.4+"', link='"http://x"', reason='"TODO"', review='"2027-03-01"'),
            entry(case="", reson='"x"', review="2027-03-01T00:00:00", observation='{name = 3, bound = "x", beter = "lower"}'),
            entry(verdict='"pass"'),
            entry(verdict='"unsupported"'),
        ]
    )
    with pytest.raises(ConfigError) as raised:
        parse(text, "cases/expectations.toml")
    told = str(raised.value)
    assert told.startswith("cases/expectations.toml has 15 mistakes:")
    for words in (
        "key 'expectaton' is unknown: perhaps you meant 'expectation'",
        "entry 2 (init.x): verdict = 'wrnog' is no verdict: perhaps you meant 'wrong'",
        "entry 2 (init.x): torch = '2.4+' is no version specifier",
        "entry 2 (init.x): link = 'http://x' must be an https:// address",
        "entry 2 (init.x): reason = 'TODO' says nothing",
        "entry 2 (init.x): review = '2027-03-01' must be a bare date",
        "entry 3: key 'reson' is unknown: perhaps you meant 'reason'",
        "entry 3: key 'case' is missing",
        "must be a bare date, as 2027-03-01",
        "entry 3: observation key 'beter' is unknown: perhaps you meant 'better'",
        "entry 3: observation key 'better' is missing",
        "entry 3: observation name = 3 must be text",
        "entry 3: observation bound = 'x' must be a number",
        "entry 4 (init.x): verdict = 'pass' needs an observation with a bound",
        "entry 5 (init.x): verdict = 'unsupported' never needs an expectation",
    ):
        assert words in told


@pytest.mark.parametrize("reason", ["", "  ", "?", "TODO", "todo.", "...", "n/a", "FIXME", "tbd:"])
def test_a_reason_must_say_something(reason: str) -> None:
    with pytest.raises(ConfigError, match="reason"):
        only(reason=f'"{reason}"')


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[[expectation", "is no TOML"),
        (b"\xff", "not UTF-8"),
        (b"expectation = 3", r"\[\[expectation\]\]"),
        (b"expectation = [3]", "must be a table"),
    ],
)
def test_files_that_are_no_expectations(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "e.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        load(tmp_path / "e.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.toml")


OUTCOMES = {
    "init.x[a]": dict(zip(("2.1.2", "2.9.0", "2.10.0", "2.11.0", "2.12.1"), ("pass", "wrong", "wrong", "pass", "wrong"), strict=True))
}


def test_drafts_join_neighbours_as_measured() -> None:
    found = [(draft.verdict, draft.torch, draft.device) for draft in drafts(records(grid(OUTCOMES)), [])]
    assert found == [("wrong", ">=2.9.0,<=2.10.0", "cpu"), ("wrong", "==2.12.1", "cpu")]


def test_drafts_leave_out_what_is_covered_or_never_came() -> None:
    result = grid({"init.x": {"2.1.2": "missing", "2.9.0": "wrong"}, "init.y": {"2.9.0": "unsupported"}})
    assert drafts(records(result), [only(torch='">2.1.2"')]) == []


def test_update_appends_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "expectations.toml"
    before = "# kept by hand\r\n" + entry(case='"init.other"').rstrip()
    path.write_bytes(before.encode())
    written = update(path, records(grid(OUTCOMES)), 'says "why" \x7f', LINK, REVIEW)
    assert path.read_bytes().startswith(before.encode())
    assert len(written) == 2
    entries = load(path)
    assert [(each.case, str(each.verdict), each.device) for each in entries[1:]] == [("init.x[a]", "wrong", "cpu")] * 2
    assert (entries[1].reason, entries[1].link, entries[1].review) == ('says "why" \x7f', LINK, REVIEW)
    again = path.read_bytes()
    assert update(path, records(grid(OUTCOMES)), None, None, None) == []
    assert path.read_bytes() == again


@pytest.mark.parametrize(("reason", "link"), [(None, LINK), ("TODO", LINK), ("because", None), ("because", "ftp://x")])
def test_update_never_invents_a_reason(tmp_path: Path, reason: str | None, link: str | None) -> None:
    path = tmp_path / "expectations.toml"
    with pytest.raises(ConfigError, match=r"(?s)2 expectations would be written:.*init\.x\[a\] is wrong.*--(reason|link)"):
        update(path, records(grid(OUTCOMES)), reason, link, REVIEW)
    assert not path.exists()


def test_prune_takes_out_spent_entries_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "expectations.toml"
    first, spent, last = (
        entry(case='"init.x[a]"'),
        entry(case='"init.now_good"', reason='"""\nlong\n# no comment\n"""'),
        entry(case='"init.gone"'),
    )
    text = f"# head\n\n{first}# about the next\n{spent}\n# tail of the second\n{last}# end\n"
    path.write_text(text)
    result = grid({**OUTCOMES, "init.now_good": {"2.9.0": "pass"}})
    assert [each.case for each in prune(path, result)] == ["init.now_good", "init.gone"]
    assert path.read_text() == f"# head\n\n{first}# about the next\n# tail of the second\n# end\n"
    assert prune(path, result) == []


def test_prune_leaves_a_file_alone_that_it_cannot_follow(tmp_path: Path) -> None:
    path = tmp_path / "expectations.toml"
    path.write_text("expectation = [{" + ", ".join(entry(case='"init.gone"').splitlines()[1:]) + "}]\n")
    before = path.read_text()
    with pytest.raises(ConfigError, match=r"edit entries \[1\] by hand"):
        prune(path, grid(OUTCOMES))
    assert path.read_text() == before


def test_explain_says_how_each_entry_stands() -> None:
    entries = parse(entry(case='"init.x[a]"', review="2026-01-01") + entry(case='"init.gone"') + entry(device='"mps"'), "e.toml")
    told = explain(entries, grid(OUTCOMES), TODAY)
    assert "    covers 3 records in 3 cells: 2.9.0, 2.10.0, 2.12.1" in told
    assert "    passes now on 2.1.2, 2.11.0" in told
    assert "    past its review date 2026-01-01" in told
    assert "    matches nothing" in told
    assert told[-1] == "    nothing was measured that it speaks of"
    assert explain([], grid({}), TODAY) == ["no expectations"]


def test_a_device_is_matched_like_an_id() -> None:
    found = only(device='"{cpu,meta}"')
    cells = {device: Cell.parse(f"torch2.4.1-py3.11-{device}-linux_x86_64") for device in ("cpu", "meta", "xla")}
    assert {device: found.in_range(each) for device, each in cells.items()} == {"cpu": True, "meta": True, "xla": False}
