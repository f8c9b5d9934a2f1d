"""Published columns: small files that read back as what was packed, and the gate that decides which column may be published."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.artifacts import encode
from conformance.cli import main
from conformance.columns import groups
from conformance.publication import Publication
from conformance.published import SUFFIX, pack, unpack
from conformance.publishgate import Decisions, decide, publish
from conformance.results import CellResult, Problem, ResultSet, read
from tests.builders import cell, collected, environment, grid, record, result, tree, write_cell, write_plan
from tests.conftest import project_with
from tests.pages import site

WHERE = cell("2.9.1")
ROWS = [
    record(WHERE, "init.x[a]", output_tail="noise", key="k1", observations={"bits": {"kind": "tensor", "digest": "a", "values": [1.5]}}),
    record(WHERE, "init.x[b]", "wrong", output_tail="told", reason="é <script>", blame={"file": "a.py", "line": 3, "source": "x"}),
    record(WHERE, "init.x[b]", "pass", attempt=2),
]
CONTROLS = [record(WHERE, "control.must_fail", "wrong")]


def packed(folder: Path, rows: list[dict[str, Any]] = ROWS, **facts: Any) -> Path:
    listed = collected(rows, {"init.x[a]": "What it asks."})
    listed["cases"][0]["key"] = "k1"
    path = folder / f"{WHERE}{SUFFIX}"
    path.write_bytes(pack(WHERE, environment(WHERE, **facts), {**listed, "key": "k"}, rows, CONTROLS))
    return path


def test_what_is_packed_reads_back_but_for_what_the_format_leaves_out(tmp_path: Path) -> None:
    (found,) = read(packed(tmp_path)).cells
    assert found.records == [{**ROWS[0], "output_tail": "", "key": None}, ROWS[1], ROWS[2]]
    assert (found.controls, found.environment, found.problems) == (CONTROLS, environment(WHERE), [])
    assert (found.titles(), found.case_ids()) == ({"init.x[a]": "What it asks."}, {"init.x[a]", "init.x[b]"})
    assert list(found.outcomes().values()) == [found.records[0], found.records[1]]


def test_equal_results_pack_to_equal_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.mkdir()
    other.mkdir()
    assert packed(one).read_bytes() == packed(other, list(reversed(ROWS))).read_bytes()


def test_a_case_without_a_record_is_missing_after_reading_as_before(tmp_path: Path) -> None:
    lost = record(WHERE, "init.lost", "missing", reason="collected, and no record came")
    (found,) = read(packed(tmp_path, [*ROWS, lost])).cells
    assert found.outcomes()["init.lost"]["reason"] == "collected, and no record came"


def changed(path: Path, change: Any) -> None:
    table = json.loads(lzma.decompress(path.read_bytes()))
    change(table)
    path.write_bytes(lzma.compress(encode(table)))


DAMAGE: dict[str, tuple[Any, str]] = {
    "no xz": (lambda path: path.write_bytes(b"no xz"), "is damaged"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-40]), "is damaged"),
    "empty": (lambda path: path.write_bytes(b""), "is damaged"),
    "list": (lambda path: path.write_bytes(lzma.compress(b"[1]")), "no published column"),
    "deep": (lambda path: path.write_bytes(lzma.compress(b"[" * 100_000)), "nested deeper"),
    "schema": (lambda path: changed(path, lambda table: table.update(schema=9)), "no published column"),
    "other cell": (lambda path: changed(path, lambda table: table.update(cell=str(cell("2.8.0")))), "no published column"),
    "short column": (lambda path: changed(path, lambda table: table["records"]["verdict"].pop()), "differ in length"),
    "rows": (lambda path: changed(path, lambda table: table.update(records=[1])), "not written as columns"),
    "no controls": (lambda path: changed(path, lambda table: table.pop("controls")), "is damaged"),
}


@pytest.mark.parametrize(("damage", "told"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_a_problem_and_no_column(tmp_path: Path, damage: Any, told: str) -> None:
    path = packed(tmp_path)
    damage(path)
    found = read(tmp_path)
    assert found.cells == []
    (problem,) = found.all_problems()
    assert told in problem.message
    assert problem.path == f"{tmp_path.name}/{path.name}"


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path)
    monkeypatch.setattr("conformance.published.MAX_BYTES", 100)
    assert "more than is believable" in unpack(path)[1][0].message


def test_a_record_that_is_not_sound_costs_itself_alone(tmp_path: Path) -> None:
    path = packed(tmp_path)
    changed(path, lambda table: table["records"]["verdict"].__setitem__(1, "green"))
    (found,) = read(path).cells
    assert [entry["case"] for entry in found.records] == ["init.x[a]", "init.x[b]"]
    assert ["verdict 'green'" in problem.message for problem in found.problems] == [True]


def test_a_name_that_is_no_cell_is_left_out(tmp_path: Path) -> None:
    packed(tmp_path).rename(tmp_path / f"notes{SUFFIX}")
    found = read(tmp_path)
    assert (found.cells, [problem.message for problem in found.problems]) == ([], ["'notes' is no cell id: left out"])


def test_newer_results_stand_before_the_published_ones(tmp_path: Path) -> None:
    old = decide(grid({"init.x": {"2.8.0": "pass", "2.9.1": "pass"}}), ResultSet(), 0.05)
    publish(old, tmp_path / "published")
    write_cell(tmp_path, WHERE, [record(WHERE, "init.x", "wrong")])
    found = {each.cell.torch: each for each in read(tmp_path, published=True).cells}
    assert {torch: each.outcomes()["init.x"]["verdict"] for torch, each in found.items()} == {"2.8.0": "pass", "2.9.1": "wrong"}
    assert [torch for torch, each in found.items() if each.publication is not None] == ["2.8.0"]
    assert [each.cell.torch for each in read(tmp_path).cells] == ["2.9.1"]
    assert [each.cell.torch for each in read(tmp_path, {str(cell("2.8.0"))}, published=True).cells] == ["2.8.0"]


def test_published_columns_fill_in_for_what_was_planned_and_did_not_run(tmp_path: Path) -> None:
    publish(decide(grid({"init.x": {"2.8.0": "pass"}}), ResultSet(), 0.05), tmp_path / "published")
    write_plan(tmp_path, [cell("2.8.0"), WHERE])
    verdicts = {each.cell.torch: [row["verdict"] for row in each.records] for each in read(tmp_path, published=True).cells}
    assert verdicts == {"2.8.0": ["pass"], "2.9.1": ["missing"]}


# ---- the gate

MANY = {f"init.x[{number:02}]": {"2.8.0": "pass", "2.9.1": "pass"} for number in range(40)}


def held(decisions: Decisions) -> dict[str, list[str]]:
    return {each.cell.split("-")[0].removeprefix("torch"): each.state.held for each in decisions.columns if each.state.is_held}


def only_held(new: ResultSet, old: ResultSet | None = None, swing: float = 0.05) -> str:
    """The reason for which the column of 2.9.1 alone is held back."""
    decisions = decide(new, old or ResultSet(), swing)
    assert list(held(decisions)) == ["2.9.1"]
    assert decisions.exit_code == 1
    (reason,) = held(decisions)["2.9.1"]
    return reason


def with_verdicts(verdict: str, count: int) -> ResultSet:
    rows = {case: dict(outcomes) for case, outcomes in MANY.items()}
    for case in list(rows)[:count]:
        rows[case]["2.9.1"] = verdict
    return grid(rows)


def changing(new: ResultSet, **fields: Any) -> ResultSet:
    """`new` with other fields in the column of 2.9.1."""
    return replace(new, cells=[replace(each, **fields) if each.cell.torch == "2.9.1" else each for each in new.cells])


def test_sound_columns_are_published() -> None:
    decisions = decide(grid(MANY), ResultSet(), 0.05)
    assert (held(decisions), decisions.exit_code) == ({}, 0)
    assert [each.state for each in decisions.columns] == [Publication("2026-11-30")] * 2
    assert decisions.lines() == ["2 columns published, 0 held back, 0 as they were"]


def test_an_all_zero_column() -> None:
    assert only_held(with_verdicts("wrong", 40)) == "an all-zero column: none of 40 cases passes"


def test_cases_without_a_record() -> None:
    assert only_held(with_verdicts("missing", 3)) == "3 of 40 cases have no record"


def test_a_column_that_never_came() -> None:
    assert only_held(with_verdicts("missing", 40)) == "it was planned, and nothing came back"
    assert only_held(changing(grid(MANY), records=[])) == "it was planned, and nothing came back"


def test_controls_that_are_off() -> None:
    off = {**environment(WHERE), "controls": {"ok": False, "off": ["control.must_fail"]}}
    assert only_held(changing(grid(MANY), environment=off)) == "controls off: control.must_fail"


def test_a_device_that_did_not_answer() -> None:
    grey = environment(WHERE, status="probe-failed", reason="no driver")
    assert only_held(changing(grid(MANY), environment=grey)) == "its device did not answer the probe: no driver"


def test_lines_that_could_not_be_read() -> None:
    reason = only_held(changing(grid(MANY), problems=[Problem("a/records.jsonl", 3, "is cut off")]))
    assert reason == "1 of its lines could not be read: a/records.jsonl:3: is cut off"


def test_machines_that_disagree() -> None:
    assert only_held(replace(grid(MANY), conflicts={str(WHERE): ["a", "b"]})) == "2 different results for it"


def _with(**counts: dict[str, int]) -> ResultSet:
    """Release -> how many cases a function has beside those of MANY, by the function's name."""
    rows = {case: {"2.7.1": "pass", **outcomes} for case, outcomes in MANY.items()}
    for name, by_release in counts.items():
        for release, count in by_release.items():
            for number in range(count):
                rows.setdefault(f"{name.replace('_', '.')}[{number:02}]", {})[release] = "pass"
    return grid(rows)


def test_denominators_that_differ_within_a_run() -> None:
    told = "changed denominators: 41 cases of init where the other columns of cpu have 42 (without init.more, with init.less)"
    rows = _with(init_more={"2.7.1": 2, "2.8.0": 2}, init_less={"2.9.1": 1})
    assert only_held(rows) == told


def test_a_function_that_lost_its_cases() -> None:
    told = "changed denominators: 54 cases of init where the other columns of cpu have 60 (14 of init.op in place of 20)"
    assert only_held(_with(init_op={"2.7.1": 20, "2.8.0": 20, "2.9.1": 14})) == told


def test_a_release_has_cases_of_its_own() -> None:
    """Operators come and go, and a family may be planned for some columns alone."""
    assert held(decide(_with(mps_op={"2.7.1": 20, "2.8.0": 21, "2.9.1": 22}), ResultSet(), 0.05)) == {}
    assert held(decide(_with(lowering_op={"2.9.1": 7}), ResultSet(), 0.05)) == {}


def test_devices_have_denominators_of_their_own() -> None:
    xla = cell("2.9.1", "xla")
    new = result((WHERE, [record(WHERE, "init.x"), record(WHERE, "init.host")]), (xla, [record(xla, "init.x")]))
    assert held(decide(new, ResultSet(), 0.05)) == {}


def test_rows_that_vanish() -> None:
    less = grid({case: outcomes for case, outcomes in MANY.items() if case != "init.x[07]"})
    decisions = decide(less, grid(MANY), 0.05)
    assert held(decisions) == {release: ["1 of 40 rows vanished (as init.x[07])"] for release in ("2.8.0", "2.9.1")}


def test_rows_that_are_new_in_every_column_are_published() -> None:
    assert held(decide(grid({**MANY, "init.new": {"2.8.0": "pass", "2.9.1": "wrong"}}), grid(MANY), 0.05)) == {}


def test_a_swing_beyond_the_limit() -> None:
    told = "init swings: 3 of 40 cases (7.5 %) changed between passing and not, the limit is 5 %"
    assert only_held(with_verdicts("raises", 3), grid(MANY)) == told
    assert held(decide(with_verdicts("raises", 3), grid(MANY), 0.10)) == {}
    assert held(decide(with_verdicts("raises", 2), grid(MANY), 0.05)) == {}
    assert held(decide(with_verdicts("error", 3), grid(MANY), 0.05)) == {}
    assert held(decide(with_verdicts("raises", 3), ResultSet(), 0.05)) == {}


def test_the_last_good_column_stays_with_its_age_and_the_reason(tmp_path: Path) -> None:
    publish(decide(grid(MANY), ResultSet(), 0.05), tmp_path)
    before = tree(tmp_path)
    bad = with_verdicts("wrong", 40)
    later = [{**row, "started_at": "2026-12-30T03:00:00+00:00"} for row in bad.cells[1].records]
    decisions = decide(changing(bad, records=later), read(tmp_path), 0.05)
    publish(decisions, tmp_path)
    assert {name: content for name, content in tree(tmp_path).items() if name.endswith(SUFFIX)} == {
        name: content for name, content in before.items() if name.endswith(SUFFIX)
    }
    found = read(tmp_path)
    state = found.publications[str(WHERE)]
    assert (state.measured, state.tried, state.age("2026-12-31"), state.age("?")) == ("2026-11-30", "2026-12-30", 31, None)
    assert state.sentence.startswith("held back, the results of 2026-11-30 stay: an all-zero column")
    assert [column.note for column in groups(found)[0].columns] == ["", "last good, of 2026-11-30"]
    publish(decide(grid(MANY), found, 0.05), tmp_path)
    assert tree(tmp_path) == before


def test_a_column_that_was_never_published_is_there_with_the_reason(tmp_path: Path) -> None:
    publish(decide(with_verdicts("wrong", 40), ResultSet(), 0.05), tmp_path)
    found = read(tmp_path)
    assert [(each.cell.torch, len(each.records)) for each in found.cells] == [("2.8.0", 40), ("2.9.1", 0)]
    assert [column.note for column in groups(found)[0].columns] == ["", "held back"]
    page = site(found)["environments.html"]
    assert "held back · newer results are not published: an all-zero column: none of 40 cases passes" in page
    assert [each.cell.torch for each in read(tmp_path, {str(cell("2.8.0"))}).cells] == ["2.8.0"]


def test_the_page_tells_how_old_a_column_is_that_stands_in(tmp_path: Path) -> None:
    publish(decide(grid(MANY), ResultSet(), 0.05), tmp_path)
    bad = with_verdicts("wrong", 40)
    later = [{**row, "started_at": "2026-12-30T03:00:00+00:00"} for row in bad.cells[1].records]
    publish(decide(changing(bad, records=later), read(tmp_path), 0.05), tmp_path)
    page = site(read(tmp_path))["environments.html"]
    assert "last good, of 2026-11-30 · 30 days older than the newest results · newer results are not published: an all-zero column" in page


def test_a_column_that_is_not_in_the_run_stays_as_it_was(tmp_path: Path) -> None:
    publish(decide(grid(MANY), ResultSet(), 0.05), tmp_path)
    one = grid({case: {"2.9.1": "pass"} for case in MANY})
    decisions = decide(one, read(tmp_path), 0.05)
    publish(decisions, tmp_path)
    assert decisions.lines()[0] == f"{cell('2.8.0')}: not among these results, those of 2026-11-30 stay"
    assert [each.cell.torch for each in read(tmp_path).cells] == ["2.8.0", "2.9.1"]


def test_a_column_that_somebody_accepts_is_published_with_the_reason() -> None:
    decisions = decide(with_verdicts("wrong", 40), ResultSet(), 0.05, {str(WHERE): "torch broke it all"})
    assert (held(decisions), decisions.columns[1].state.accepted) == ({}, "torch broke it all")
    assert decisions.columns[1].results is not None
    empty = decide(changing(grid(MANY), records=[]), ResultSet(), 0.05, {str(WHERE): "why not"})
    assert list(held(empty)) == ["2.9.1"]


def test_states_that_nobody_wrote_are_read_without_trust(tmp_path: Path) -> None:
    packed(tmp_path)
    for content in (
        b"[]",
        b'{"columns": 3}',
        b'{"columns": {"x": 3, "y": {"held": "no", "measured": 7}}}',
        b'{"schema": 9, "columns": {}}',
        b"{",
    ):
        (tmp_path / "publication.json").write_bytes(content)
        found = read(tmp_path)
        assert found.cells[0].publication == Publication("")
        assert all(isinstance(state, Publication) and state.held == [] for state in found.publications.values())


# ---- the commands


def run(project: Path, *arguments: str) -> int:
    return main(["--project", str(project), *arguments])


def test_publish_report_and_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = project_with(tmp_path)
    for version in ("2.8.0", "2.9.1"):
        write_cell(tmp_path / "reports", cell(version), [record(version, "init.x"), record(version, "init.y", "wrong")])
    assert run(project, "gate", "--publish") == 0
    assert "2 columns published, 0 held back" in capsys.readouterr().out
    (tmp_path / "clone" / "reports").mkdir(parents=True)
    clone = project_with(tmp_path / "clone")
    (tmp_path / "reports" / "published").rename(clone / "reports" / "published")
    assert run(project, "report", "--published") == 2
    assert run(clone, "report") == 0
    assert run(clone, "report", "--published") == 0
    assert (clone / "reports" / "site" / "index.html").is_file()
    assert run(clone, "show", "init.y") == 0
    write_cell(clone / "reports", cell("2.9.1"), [record("2.9.1", "init.x", "wrong"), record("2.9.1", "init.y", "wrong")])
    capsys.readouterr()
    assert run(clone, "diff") == 1
    assert "pass -> wrong: no reason recorded" in capsys.readouterr().out
    assert run(clone, "gate", "--publish") == 1
    assert "an all-zero column" in capsys.readouterr().out


def test_there_is_no_site_of_columns_that_were_all_held_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cell(tmp_path / "reports", WHERE, [record(WHERE, "init.x", "wrong")])
    assert run(project_with(tmp_path), "gate", "--publish") == 1
    assert run(tmp_path, "report", "--published") == 3
    assert "no column is published" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--accept", "torch2.9.1*"), "go with --publish"),
        (("--publish", "--accept", "torch2.9.1*"), "--accept needs --reason"),
        (("--publish", "--accept", "torch3*", "--reason", "x"), "no cell matches 'torch3*'"),
    ],
)
def test_wrong_arguments_of_publish(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    write_cell(tmp_path / "reports", WHERE, [record(WHERE, "init.x")])
    assert run(project_with(tmp_path), "gate", *arguments) == 2
    assert told in capsys.readouterr().err


def test_a_run_says_what_changed_against_the_published_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from conformance import configfile
    from conformance.commands.reading import build_report

    config = configfile.load(project_with(tmp_path))
    write_cell(config.reports, WHERE, [record(WHERE, "init.x")])
    assert run(tmp_path, "gate", "--publish") == 0
    write_cell(config.reports, WHERE, [record(WHERE, "init.x", "wrong")])
    build_report(config, {str(WHERE)})
    told = capsys.readouterr().out.splitlines()
    assert told[-3:] == [
        "against the published results: 1 of 1 columns differ",
        f"  {WHERE}: 1 case got worse (1 case compared)",
        "  all of it: conformance diff",
    ]


def test_an_empty_cell_result_reads_as_nothing() -> None:
    assert decide(ResultSet([CellResult(WHERE)]), ResultSet(), 0.05).columns[0].state.held == ["it was planned, and nothing came back"]
