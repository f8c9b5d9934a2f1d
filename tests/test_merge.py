"""Merging results of several machines: any order, any number of times, and never a fact lost."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from conformance.artifacts import parse
from conformance.errors import ConfigError
from conformance.merge import MergeReport, collect
from conformance.results import read, read_records, write_json, write_records
from tests.builders import cell, collected, line, record, tree, write_cell, write_plan

HERE = cell("2.4.1")


def machine(folder: Path, *rows: dict[str, Any], **fields: Any) -> Path:
    """The reports of one machine that ran HERE, with a plan."""
    write_cell(folder, HERE, list(rows), **fields)
    write_plan(folder, [HERE])
    return folder


def rows_of(reports: Path) -> list[dict[str, Any]]:
    return read_records(reports / "results" / str(HERE) / "records.jsonl")[0]


def test_cells_of_two_machines_stand_side_by_side_in_any_order(tmp_path: Path) -> None:
    write_cell(tmp_path / "a", cell("2.10.0"), [record("2.10.0", "init.x")])
    write_plan(tmp_path / "a", [cell("2.10.0")], ["init.inits"])
    write_cell(tmp_path / "b", cell("2.4.1"), [record("2.4.1", "init.x")])
    write_plan(tmp_path / "b", [cell("2.4.1")], ["trace.masks"])
    one = collect([tmp_path / "a", tmp_path / "b"], tmp_path / "ab")
    collect([tmp_path / "b", tmp_path / "a"], tmp_path / "ba")
    collect([tmp_path / "b"], tmp_path / "steps")
    collect([tmp_path / "a"], tmp_path / "steps")
    assert tree(tmp_path / "ab") == tree(tmp_path / "ba") == tree(tmp_path / "steps")
    assert (one.exit_code, one.problems, len(one.cells)) == (0, [], 2)
    plan = read(tmp_path / "ab").plan
    assert plan is not None
    assert [entry["cell"] for entry in plan["cells"]] == [str(cell("2.4.1")), str(cell("2.10.0"))]
    assert [entry["case"] for entry in plan["files"]] == ["init.inits", "trace.masks"]


def test_twice_is_the_same_as_once(tmp_path: Path) -> None:
    source = machine(tmp_path / "a", record(HERE, "init.y"), record(HERE, "init.x"))
    collect([source], tmp_path / "into")
    once = tree(tmp_path / "into")
    report = collect([source, source, tmp_path / "into"], tmp_path / "into")
    assert tree(tmp_path / "into") == once
    assert (report.exit_code, len(report.cells)) == (0, 1)


@pytest.mark.parametrize("shape", ["", "results", f"results/{HERE}"])
def test_a_source_may_be_reports_results_or_one_cell(tmp_path: Path, shape: str) -> None:
    machine(tmp_path / "a", record(HERE, "init.x"))
    assert collect([tmp_path / "a" / shape], tmp_path / "into").cells == [str(HERE)]
    assert len(rows_of(tmp_path / "into")) == 1


def test_a_folder_of_downloaded_artifacts_is_opened(tmp_path: Path) -> None:
    machine(tmp_path / "artifacts" / "results-linux", record(HERE, "init.x"))
    write_cell(tmp_path / "spare", cell("2.10.0"), [record("2.10.0", "init.x")])
    shutil.move(tmp_path / "spare" / "results" / str(cell("2.10.0")), tmp_path / "artifacts" / "job-17")
    assert len(collect([tmp_path / "artifacts"], tmp_path / "into").cells) == 2


def test_shards_of_one_cell_are_united(tmp_path: Path) -> None:
    first = machine(tmp_path / "a", record(HERE, "init.x"), started_at="2026-11-30T03:00:00+00:00")
    second = machine(tmp_path / "b", record(HERE, "init.y"), started_at="2026-11-30T04:00:00+00:00")
    for order in itertools.permutations([first, second]):
        into = tmp_path / order[0].name / "into"
        assert collect(order, into).conflicts == {}
        assert [row["case"] for row in rows_of(into)] == ["init.x", "init.y"]
        cases = parse((into / "results" / str(HERE) / "collected.json").read_bytes())["cases"]
        assert [entry["case"] for entry in cases] == ["init.x", "init.y"]
        assert read(into).cells[0].environment["started_at"] == "2026-11-30T03:00:00+00:00"


CONTRADICTIONS: list[dict[str, Any]] = [
    {"rows": [record(HERE, "init.x", "wrong")]},
    {"rows": [record(HERE, "init.y")], "torch": {"version": "2.4.1+cu121"}},
]


@pytest.mark.parametrize("other", CONTRADICTIONS, ids=["record", "environment"])
@pytest.mark.parametrize("swap", [False, True])
def test_two_facts_for_one_cell_are_a_conflict(tmp_path: Path, other: dict[str, Any], swap: bool) -> None:
    facts = dict(other)
    sources = [machine(tmp_path / "a", record(HERE, "init.x")), machine(tmp_path / "b", *facts.pop("rows"), **facts)]
    into = tmp_path / "into"
    report = collect(sources[::-1] if swap else sources, into)
    assert (report.exit_code, list(report.conflicts), report.cells) == (5, [str(HERE)], [])
    assert len(report.conflicts[str(HERE)]) == 2
    assert not (into / "results" / str(HERE)).exists()
    assert {path.parent.parent.parent.name for path in into.rglob("records.jsonl")} == {"conflicts"}
    found = read(into)
    assert [(row["case"], row["verdict"]) for row in found.cells[0].records] == [("init.inits", "missing")]
    assert "2 different results" in found.cells[0].records[0]["reason"]
    assert any("conflict" in told for told in report.lines())


def test_a_conflict_is_the_same_in_any_order_and_stays(tmp_path: Path) -> None:
    sources = [
        machine(tmp_path / name, record(HERE, "init.x", verdict)) for name, verdict in zip("abc", ("pass", "wrong", "crash"), strict=True)
    ]
    trees = []
    for number, order in enumerate(itertools.permutations(sources)):
        into = tmp_path / f"into{number}"
        for source in order if number % 2 else ():
            collect([source], into)
        collect(order, into)
        trees.append(tree(into))
        assert len(collect(order[:1], into).conflicts[str(HERE)]) == 3
        assert tree(into) == trees[0]


def test_a_conflict_ends_when_one_variant_is_left(tmp_path: Path) -> None:
    sources = [machine(tmp_path / name, record(HERE, "init.x", verdict)) for name, verdict in zip("ab", ("pass", "wrong"), strict=True)]
    into = tmp_path / "into"
    for variant in collect(sources, into).conflicts[str(HERE)]:
        folder = into / "conflicts" / str(HERE) / variant
        if read_records(folder / "records.jsonl")[0][0]["verdict"] == "wrong":
            shutil.rmtree(folder)
    assert collect([], into).conflicts == {}
    assert [row["verdict"] for row in rows_of(into)] == ["pass"]
    assert not (into / "conflicts" / str(HERE)).exists()


def test_what_else_lay_in_the_folder_survives_a_conflict(tmp_path: Path) -> None:
    into = machine(tmp_path / "into", record(HERE, "init.x"))
    (into / "results" / str(HERE) / "output.log").write_text("kept")
    collect([machine(tmp_path / "b", record(HERE, "init.x", "wrong"))], into)
    assert [path.read_text() for path in into.glob("conflicts/*/*/output.log")] == ["kept"]


def test_a_torn_copy_adds_nothing_and_costs_nothing(tmp_path: Path) -> None:
    whole = machine(tmp_path / "a", record(HERE, "init.x"), record(HERE, "init.y"))
    torn = machine(tmp_path / "b", record(HERE, "init.x"), record(HERE, "init.y"))
    path = torn / "results" / str(HERE) / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    report = collect([torn, whole], tmp_path / "into")
    assert (report.conflicts, report.exit_code) == ({}, 5)
    assert "cut off" in report.problems[0].message
    assert len(rows_of(tmp_path / "into")) == 2


def test_what_is_readable_of_a_newer_schema_is_kept(tmp_path: Path) -> None:
    into = machine(tmp_path / "into", record(HERE, "init.x"))
    path = into / "results" / str(HERE) / "records.jsonl"
    newer = line(**{**record(HERE, "init.z"), "schema": 2, "shape": "new"})
    path.write_bytes(path.read_bytes() + newer)
    report = collect([machine(tmp_path / "b", record(HERE, "init.y"))], into)
    assert [row["case"] for row in rows_of(into)] == ["init.x", "init.y"]
    assert "schema 2" in report.problems[0].message
    assert [newer in kept.read_bytes() for kept in path.parent.glob("*.unreadable")] == [True]


def test_a_cell_without_environment_joins_the_one_that_has_it(tmp_path: Path) -> None:
    bare = machine(tmp_path / "a", record(HERE, "init.x"))
    (bare / "results" / str(HERE) / "environment.json").write_text("{broken")
    report = collect([bare, machine(tmp_path / "b", record(HERE, "init.x"))], tmp_path / "into")
    assert (report.conflicts, len(report.problems)) == ({}, 1)
    assert read(tmp_path / "into").cells[0].fact("torch", "version") == "2.4.1+cpu"


def test_a_merge_that_dies_at_any_write_is_repaired_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [machine(tmp_path / name, record(HERE, "init.x", verdict)) for name, verdict in zip("ab", ("pass", "wrong"), strict=True)]
    collect(sources, tmp_path / "good")
    real = Path.replace
    for fatal in range(1, 14):
        into, calls = tmp_path / f"into{fatal}", itertools.count(1)

        def dies(self: Path, target: Path, fatal: int = fatal, calls: Any = calls) -> Path:
            if next(calls) == fatal:
                raise KeyboardInterrupt
            return real(self, target)

        collect(sources[:1], into)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dies)
            with contextlib.suppress(KeyboardInterrupt):
                collect(sources, into)
        for path in into.rglob("*.json*"):
            if ".tmp" not in str(path):
                assert path.read_bytes()[-1:] in (b"\n", b"")
        collect(sources, into)
        assert {name: content for name, content in tree(into).items() if ".tmp" not in name} == tree(tmp_path / "good")


def test_sources_that_hold_nothing_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    report = collect([tmp_path / "empty"], tmp_path / "into")
    assert [str(problem) for problem in report.problems] == [f"{tmp_path / 'empty'}: results: this source holds no results of any cell"]
    with pytest.raises(ConfigError, match="there is no folder"):
        collect([tmp_path / "nowhere"], tmp_path / "into")


def test_a_folder_that_names_no_cell_is_told(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "collected.json", collected([]))
    write_records(tmp_path / "a" / "records.jsonl", [])
    report = collect([tmp_path / "a"], tmp_path / "into")
    assert "which cell it is" in report.problems[0].message


def test_the_report_says_where_everything_is(tmp_path: Path) -> None:
    assert MergeReport(tmp_path, ["a", "b"]).lines() == [f"2 cells under {tmp_path / 'results'}"]


def test_what_came_twice_and_what_never_came_is_told(tmp_path: Path) -> None:
    for name in ("one", "again"):
        write_cell(tmp_path / "machines" / name, HERE, [record(HERE, "init.x")])
    write_plan(tmp_path / "machines" / "plan", [HERE, cell("2.10.0")])
    report = collect([tmp_path / "machines"], tmp_path / "into")
    assert report.lines()[1:] == [
        f"repeated: {HERE} came 2 times with equal results, and counts once",
        f"missing: {cell('2.10.0')} was planned, and nothing that can be read came of it",
    ]
    assert report.exit_code == 0
    assert collect([tmp_path / "machines" / "one"], tmp_path / "into").repeated == {}


def test_a_result_of_another_schema_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = write_cell(tmp_path / "a", HERE, [record(HERE, f"init.x{number}") for number in range(20)], schema=2)
    (folder / "records.jsonl").write_bytes((folder / "records.jsonl").read_bytes().replace(b'"schema":1', b'"schema":2'))
    report = collect([tmp_path / "a"], tmp_path / "into")
    assert [problem.message for problem in report.problems] == ["has schema 2, this tool reads 1: use the version that wrote it"]
    assert not (tmp_path / "into" / "results").exists()
