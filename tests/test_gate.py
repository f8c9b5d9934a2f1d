"""The gate: red for what nobody expected, for expectations that no longer hold, and for records that are not whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from conformance.expectations import Expectation, parse
from conformance.gate import Judgement, judge
from conformance.merge import collect
from conformance.publication import Publication
from conformance.results import Problem, ResultSet, read
from tests.builders import cell, environment, grid, record, result, write_cell, write_plan
from tests.test_expectations import LINK, TODAY, entry

GOOD = {"init.x": {"2.9.0": "pass", "2.10.0": "pass"}}
BAD = {"init.x": {"2.9.0": "pass", "2.10.0": "wrong"}}


def expecting(*texts: str) -> list[Expectation]:
    return parse("\n".join(texts), "expectations.toml")


def kinds(judgement: Judgement) -> list[str]:
    return [finding.kind for finding in judgement.findings]


def test_green_is_green() -> None:
    judgement = judge(grid(GOOD), [], TODAY)
    assert (judgement.exit_code, judgement.findings, judgement.judged) == (0, [], 2)
    assert judgement.lines() == ["as expected: 2 cells judged, 0 findings"]


@pytest.mark.parametrize("verdict", ["wrong", "crash", "raises", "timeout", "unexercised", "error"])
def test_a_deviation_that_nobody_expected_is_red(verdict: str) -> None:
    judgement = judge(grid({"init.x": {"2.9.0": verdict, "2.10.0": verdict}}), [], TODAY)
    assert (judgement.exit_code, kinds(judgement)) == (1, [verdict])
    assert judgement.findings[0].where == "cpu, torch 2.9.0, 2.10.0"
    assert judgement.lines()[1].strip().startswith(("mend it, or record why: conformance expect --update", "this says nothing about torch"))


def test_unsupported_is_no_deviation() -> None:
    assert judge(grid({"init.x": {"2.9.0": "unsupported"}}), [], TODAY).exit_code == 0


def test_an_expectation_covers_its_deviation() -> None:
    assert judge(grid(BAD), expecting(entry(torch='"==2.10.0"')), TODAY).exit_code == 0


def test_an_expectation_of_another_verdict_covers_nothing() -> None:
    assert kinds(judge(grid(BAD), expecting(entry(torch='"==2.10.0"', verdict='"crash"')), TODAY)) == ["wrong", "unmatched"]


def test_an_expected_deviation_that_passes_is_red() -> None:
    judgement = judge(grid(GOOD), expecting(entry()), TODAY)
    assert (judgement.exit_code, kinds(judgement)) == (1, ["stale"])
    assert "conformance expect --prune" in judgement.lines()[1]


def test_one_that_passes_on_some_releases_is_to_be_narrowed() -> None:
    outcomes = {"init.x": dict(zip(("2.1.2", "2.9.0", "2.10.0", "2.11.0"), ("pass", "wrong", "pass", "wrong"), strict=True))}
    judgement = judge(grid(outcomes), expecting(entry()), TODAY)
    assert kinds(judgement) == ["stale"]
    assert 'narrow it to torch = "!=2.1.*,!=2.10.*": conformance expect --tighten --case init.x' in judgement.lines()[1]
    assert judge(grid(outcomes), expecting(entry(torch='">=2.9.0,<=2.11.0,!=2.10.0"')), TODAY).exit_code == 0


def test_two_platforms_of_one_release_may_differ() -> None:
    mac = cell("2.9.0", platform="macos_arm64")
    here = cell("2.9.0")
    found = result((here, [record(here, "init.x", "wrong")]), (mac, [record(mac, "init.x")]))
    assert judge(found, expecting(entry()), TODAY).exit_code == 0


@pytest.mark.parametrize(
    ("text", "red"),
    [
        (entry(case='"init.gone"'), True),
        (entry(case='"init.gone"', torch='">=2.11"'), False),
        (entry(case='"init.gone"', device='"mps"'), False),
        (entry(case='"rope.gone"'), False),
        (entry(case='"*.gone"'), True),
    ],
)
def test_an_entry_that_matches_nothing_is_red_where_it_could_have(text: str, red: bool) -> None:
    judgement = judge(grid(GOOD), expecting(text), TODAY)
    assert kinds(judgement) == (["unmatched"] if red else [])


def test_an_entry_is_not_asked_of_a_cell_where_its_family_is_not_planned() -> None:
    """A family may be planned on the newest release alone."""
    mixed = grid({"init.a": {"2.10.0": "pass", "2.11.0": "pass"}, "lowering.b": {"2.11.0": "pass"}})
    older, newer = entry(case='"lowering.gone"', torch='"==2.10.0"'), entry(case='"lowering.gone"', torch='"==2.11.0"')
    assert kinds(judge(mixed, expecting(older), TODAY)) == []
    assert kinds(judge(mixed, expecting(newer), TODAY)) == ["unmatched"]


def test_an_entry_about_several_families_is_asked_where_all_of_them_are_planned() -> None:
    both = expecting(entry(case='"{init.gone,lowering.{gone,lost}}"'))
    assert kinds(judge(grid({"init.a": {"2.10.0": "pass"}}), both, TODAY)) == []
    assert kinds(judge(grid({"init.a": {"2.10.0": "pass"}, "lowering.b": {"2.10.0": "pass"}}), both, TODAY)) == ["unmatched"]


def test_an_entry_is_not_asked_for_cases_that_were_not_selected() -> None:
    gone = expecting(entry(case='"init.gone"'))
    assert judge(replace(grid(GOOD), plan={"selected_cases": ["init.x"]}), gone, TODAY).exit_code == 0
    deep = grid(GOOD)
    deep.cells[0].collected["left_out"] = ["init.gone"]
    assert judge(deep, gone, TODAY).exit_code == 0


def test_an_entry_past_its_date_is_red_on_the_day_after() -> None:
    entries = expecting(entry(torch='"==2.10.0"', review="2026-11-30"))
    assert judge(grid(BAD), entries, date(2026, 11, 30)).exit_code == 0
    judgement = judge(grid(BAD), entries, date(2026, 12, 1))
    assert (judgement.exit_code, kinds(judgement)) == (1, ["overdue"])
    assert LINK in judgement.lines()[1]


def test_a_bound_is_kept_moved_or_broken() -> None:
    entries = expecting(entry(verdict='"pass"', observation='{name = "breaks", bound = 3, better = "lower"}'))

    def with_breaks(*values: int) -> ResultSet:
        cells = [cell("2.9.0"), cell("2.10.0")]
        rows = [
            [record(where, "init.x", observations={"breaks": {"kind": "number", "value": value}})]
            for where, value in zip(cells, values, strict=True)
        ]
        return result(*zip(cells, rows, strict=True))

    assert judge(with_breaks(3, 2), entries, TODAY).exit_code == 0
    better = judge(with_breaks(2, 1), entries, TODAY)
    assert (kinds(better), better.exit_code) == (["stale"], 1)
    assert "move the bound to 2: conformance expect --tighten --case init.x" in better.lines()[1]
    worse = judge(with_breaks(3, 4), entries, TODAY)
    assert (kinds(worse), worse.exit_code) == (["regression"], 1)
    assert "breaks is 4, the bound is 3 (lower is better)" in worse.lines()[0]


def test_controls_that_are_off_make_the_cell_red_and_hide_nothing_else() -> None:
    judgement = judge(grid(BAD, controls={"ok": False, "off": ["control.must_be_wrong"]}), [], TODAY)
    assert (kinds(judgement), judgement.exit_code, judgement.judged) == (["control", "control"], 1, 0)
    assert "control.must_be_wrong" in judgement.lines()[0]
    assert "1 deviations here are not judged" in "".join(judgement.lines())


def test_a_grey_cell_is_shown_and_not_judged() -> None:
    judgement = judge(grid({"init.x": {"2.9.0": "error"}}, status="probe-failed"), [], TODAY)
    assert (judgement.exit_code, judgement.grey) == (0, [str(cell("2.9.0"))])
    assert "its device did not answer the probe" in judgement.lines()[0]


def test_incomplete_records_come_before_deviations(tmp_path: Path) -> None:
    write_plan(tmp_path, [cell("2.9.0"), cell("2.10.0")])
    write_cell(tmp_path, cell("2.9.0"), [record("2.9.0", "init.x", "wrong")])
    judgement = judge(read(tmp_path), [], TODAY)
    assert (judgement.exit_code, kinds(judgement)) == (5, ["missing", "wrong"])
    assert f"conformance run --only {cell('2.10.0')}" in judgement.lines()[1]


def test_a_conflict_is_incomplete(tmp_path: Path) -> None:
    write_cell(tmp_path / "a", cell("2.9.0"), [record("2.9.0", "init.x", "wrong")])
    write_cell(tmp_path / "b", cell("2.9.0"), [record("2.9.0", "init.x")])
    collect([tmp_path / "a", tmp_path / "b"], tmp_path / "into")
    judgement = judge(read(tmp_path / "into"), [], TODAY)
    assert (judgement.exit_code, kinds(judgement)) == (5, ["conflict"])


def test_damage_is_incomplete_and_so_is_nothing() -> None:
    assert kinds(judge(replace(grid(GOOD), problems=[Problem("plan.json", 0, "is damaged")]), [], TODAY)) == ["damaged"]
    assert (judge(ResultSet(), [], TODAY).exit_code, kinds(judge(ResultSet(), [], TODAY))) == (5, ["empty"])


def test_hostile_text_stays_on_its_line() -> None:
    rows = [record("2.9.0", "init.x[\x1b]0;pwned\x07]", "wrong", reason="a\n::error::b\r\x1b[2J\u202eevil" + "x" * 5000)]
    lines = judge(result((cell("2.9.0"), rows)), [], TODAY).lines()
    assert all(line.isprintable() and len(line) < 700 for line in lines)
    assert "\\x1b" in lines[0]


def test_many_findings_are_counted_and_not_cut_in_silence() -> None:
    judgement = judge(grid({f"init.x{number}": {"2.9.0": "wrong"} for number in range(30)}), [], TODAY)
    assert len(judgement.lines(limit=10)) == 22
    assert "... and 20 more findings" in judgement.lines(limit=10)[-2]


def test_environments_that_say_nothing_are_judged() -> None:
    found = grid(BAD)
    found.cells[0].environment.clear()
    assert environment(cell("2.9.0"))["status"] == "ok"
    assert kinds(judge(found, [], TODAY)) == ["wrong"]


def test_what_varies_with_the_build_is_covered_and_is_not_stale() -> None:
    varying = expecting(entry(torch='"==2.10.0"', varies='"with the build"'))
    assert judge(grid(BAD), varying, TODAY).exit_code == 0
    assert judge(grid(GOOD), varying, TODAY).exit_code == 0
    assert judge(grid(GOOD), expecting(entry(torch='"==2.10.0"')), TODAY).exit_code == 1


def test_a_published_column_may_be_older_than_an_entry() -> None:
    older = grid(GOOD)
    older = replace(older, cells=[replace(each, publication=Publication(measured="2026-11-30")) for each in older.cells])
    assert kinds(judge(older, expecting(entry(case='"init.gone"'), entry(case='"*.gone"')), TODAY)) == []
