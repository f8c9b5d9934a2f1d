"""The files beside the site: what they say, that they follow their schemas, and that hostile results stay data."""

from __future__ import annotations

import csv
import io
import json
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance import matrix as _matrix
from conformance.columns import groups
from conformance.expectations import Expectation, parse
from conformance.gate import judge
from conformance.report import badranges
from conformance.report.badge import badge, svg
from conformance.report.feed import feed
from conformance.report.files import write_files
from conformance.results import ResultSet
from tests.builders import cell, grid, record, result, tree
from tests.test_expectations import TODAY, entry

DATA = Path(_matrix.__file__).parent / "data"
ATOM = "{http://www.w3.org/2005/Atom}"
GRID = {
    "init.x[a]": {"2.1.2": "pass", "2.9.1": "wrong", "2.10.0": "wrong"},
    "init.x[b]": {"2.1.2": "pass", "2.9.1": "pass", "2.10.0": "pass"},
    "trace.y": {"2.1.2": "unsupported", "2.9.1": "error", "2.10.0": "raises"},
}
HOSTILE = "<script>alert(1)</script>]]>\"'&\x00\x1b[31m\u202e\ufffe\ud800|`x`\r\n=cmd|' /C calc'!A0 @team" + "y" * 5000


def written(folder: Path, found: ResultSet, expectations: list[Expectation] | None = None) -> dict[str, bytes]:
    known = expectations or []
    write_files(found, known, judge(found, known, TODAY), folder)
    return tree(folder)


def valid(name: str, content: bytes) -> Any:
    """The content of a file that follows its schema."""
    schema = json.loads((DATA / f"{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    table = json.loads(content)
    Draft202012Validator(schema).validate(table)
    return table


def hostile() -> ResultSet:
    cells = []
    for version, verdict in (("2.9.1", "pass"), ("2.10.0", "wrong")):
        where = cell(version)
        fields: dict[str, Any] = {
            "family": HOSTILE,
            "subject": HOSTILE,
            "reason": HOSTILE if verdict == "wrong" else "",
            "output_tail": HOSTILE,
            "started_at": HOSTILE,
            "exception": {"type": HOSTILE, "message": HOSTILE},
            "blame": {"file": HOSTILE, "line": HOSTILE, "source": HOSTILE},
            "observations": {
                HOSTILE: {"kind": "number", "value": HOSTILE, "better": "lower"},
                "n": {"kind": "number", "value": "nan", "better": HOSTILE},
                "odd": 7,
            },
        }
        cells.append((where, [record(where, f"init.x[{HOSTILE}]", verdict, **fields)]))
    return result(*cells, status=HOSTILE, reason=HOSTILE, torch={"version": HOSTILE})


@pytest.mark.parametrize("found", [grid(GRID), ResultSet(), hostile()], ids=["grid", "empty", "hostile"])
def test_json_files_follow_the_schemas_that_ship(tmp_path: Path, found: ResultSet) -> None:
    files = written(tmp_path, found)
    assert valid("matrix", files["matrix.json"])["schema"] == 1
    assert valid("bad-ranges", files["bad-ranges.json"])["schema"] == 1


def test_matrix_json_holds_what_was_measured(tmp_path: Path) -> None:
    entries = parse(entry(case='"init.x[a]"', torch='"<2.10"'), "e.toml")
    table = valid("matrix", written(tmp_path, grid(GRID), entries)["matrix.json"])
    assert [(column["torch"], column["counts"]) for column in table["columns"]] == [
        ("2.1.2", {"pass": 2, "unsupported": 1}),
        ("2.9.1", {"wrong": 1, "error": 1, "pass": 1}),
        ("2.10.0", {"wrong": 1, "raises": 1, "pass": 1}),
    ]
    cases = {each["case"]: each for each in table["cases"]}
    assert cases["init.x[a]"]["passes"][0]["torch"] == "==2.1.*"
    assert cases["trace.y"]["passes"][0] == {
        "device": "cpu",
        "platform": "linux_x86_64",
        "tag": "",
        "torch": "none",
        "tested": "tested 2.1.2 to 2.10.0, nothing from 2.9.1",
    }
    by_release = {name.split("-")[0]: each for name, each in cases["init.x[a]"]["results"].items()}
    assert by_release["torch2.1.2"] == {"verdict": "pass"}
    assert by_release["torch2.9.1"]["expected"]["reason"] == "bits moved"
    assert by_release["torch2.10.0"] == {"verdict": "wrong", "reason": "wrong here"}


def test_numbers_that_are_not_finite_are_text_in_matrix_json(tmp_path: Path) -> None:
    rows = [record("2.9.1", "init.x", observations={"error": {"kind": "number", "value": "inf", "better": "lower"}})]
    table = valid("matrix", written(tmp_path, result((cell("2.9.1"), rows)))["matrix.json"])
    assert next(iter(table["cases"][0]["results"].values()))["numbers"] == {"error": "inf"}


def test_bad_ranges_hold_exactly_where_it_fails() -> None:
    verdicts = ["pass", "wrong", "raises", "unsupported", "error"]
    releases = ["2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0rc1", "2.11.0"]
    drawn = random.Random(0)
    for _ in range(60):
        outcomes = {release: drawn.choice(verdicts) for release in releases}
        listed = badranges.table(groups(grid({"init.x": outcomes})))["ranges"]
        bad: Mapping[str, list[str]] = listed[0]["bad"] if listed else {}
        for release, verdict in outcomes.items():
            found = {
                name
                for name, specs in bad.items()
                if any(SpecifierSet(each).contains(Version(release), prereleases=True) for each in specs)
            }
            if verdict != "error":  # not measured: a range of its neighbours may well span it
                assert found == ({verdict} if verdict in ("wrong", "raises") else set()), (outcomes, bad)


def test_cells_that_do_not_count_have_no_bad_range() -> None:
    found = grid(GRID, controls={"ok": False, "off": ["control.must_fail"]})
    assert badranges.table(groups(found))["ranges"] == []


def test_junit_counts_and_tells_what_failed(tmp_path: Path) -> None:
    entries = parse(entry(case='"init.x[a]"', torch='"<2.10"'), "e.toml")
    root = ElementTree.fromstring(written(tmp_path, grid(GRID), entries)["junit.xml"])
    assert [(suite.get("name"), *map(suite.get, ("tests", "failures", "errors", "skipped"))) for suite in root] == [
        (str(cell("2.1.2")), "3", "0", "0", "1"),
        (str(cell("2.9.1")), "3", "0", "1", "1"),
        (str(cell("2.10.0")), "3", "2", "0", "0"),
    ]
    told = {case.get("name"): [(inner.tag, inner.get("type"), inner.get("message")) for inner in case] for case in root[2]}
    assert told == {
        "init.x[a]": [("failure", "wrong", "wrong here")],
        "init.x[b]": [],
        "trace.y": [("failure", "raises", "raises here")],
    }
    (skipped,) = (inner for case in root[1] for inner in case if inner.tag == "skipped")
    assert str(skipped.get("message")).startswith("expected wrong: bits moved (https://")
    assert root[0].get("timestamp") == "2026-11-30T03:00:00"


def test_the_feed_has_an_entry_for_each_release_that_changed_something() -> None:
    root = ElementTree.fromstring(feed(groups(grid(GRID))))
    titles = [entry.findtext(f"{ATOM}title") for entry in root.iter(f"{ATOM}entry")]
    assert titles == [
        "torch 2.10.0 on cpu · linux_x86_64: nothing changed (2 cases compared); 1 case changed since an older release",
        "torch 2.9.1 on cpu · linux_x86_64: 1 case got worse (2 cases compared)",
    ]
    ids = [element.text for element in root.iter(f"{ATOM}id")]
    assert len(set(ids)) == 3
    assert {element.text for element in root.iter(f"{ATOM}updated")} == {"2026-11-30T03:00:00Z"}
    assert "<li>pass to wrong: <code>init.x[a]</code>: wrong here</li>" in str(root[-1].findtext(f"{ATOM}content"))


def test_the_feed_s_ids_stay_when_a_release_is_added() -> None:
    def ids(*releases: str) -> set[str]:
        rows = {case: {release: outcomes[release] for release in releases} for case, outcomes in GRID.items()}
        return {str(element.text) for element in ElementTree.fromstring(feed(groups(grid(rows)))).iter(f"{ATOM}id")}

    assert ids("2.1.2", "2.9.1") < ids("2.1.2", "2.9.1", "2.10.0")


def test_a_feed_without_changes_is_still_a_feed() -> None:
    for found in (ResultSet(), grid({"init.x": {"2.9.1": "pass", "2.10.0": "pass"}})):
        root = ElementTree.fromstring(feed(groups(found)))
        assert list(root.iter(f"{ATOM}entry")) == []
        assert root.findtext(f"{ATOM}updated") == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("verdict", "message", "color"),
    [("pass", "3 torch releases, as expected", "brightgreen"), ("wrong", "3 torch releases, 1 deviating", "red")],
)
def test_badges_say_the_same(verdict: str, message: str, color: str) -> None:
    found = grid({"init.x": {"2.1.2": "pass", "2.9.1": "pass", "2.10.0": verdict}})
    told = badge(found, judge(found, [], TODAY))
    assert told == {"schemaVersion": 1, "label": "conformance", "message": message, "color": color}
    root = ElementTree.fromstring(svg(told))
    assert root.get("aria-label") == f"conformance: {message}"
    assert [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")] == ["conformance", message]


def test_the_summary_tells_what_the_newest_release_changed(tmp_path: Path) -> None:
    text = written(tmp_path, grid(GRID))["summary.md"].decode()
    assert "- torch 2.10.0 on cpu · linux_x86_64, against 2.9.1: nothing changed (2 cases compared)" in text.replace("\\", "")
    assert "  - unsupported → raises: `trace.y`: raises here" in text


def test_the_summary_counts_the_cases_that_it_does_not_name(tmp_path: Path) -> None:
    many = {f"init.x[{number:02}]": {"2.9.1": "pass", "2.10.0": "wrong"} for number in range(60)}
    assert "`init.x[49]` and 10 more: wrong here" in written(tmp_path, grid(many))["summary.md"].decode()


def test_hostile_results_stay_data_in_every_file(tmp_path: Path) -> None:
    files = written(tmp_path, hostile())
    for name in ("junit.xml", "changes.atom", "badge.svg"):
        for element in ElementTree.fromstring(files[name]).iter():
            assert element.tag.rpartition("}")[2] not in ("script", "img")
    for content in (str(each.text) for each in ElementTree.fromstring(files["changes.atom"]).iter(f"{ATOM}content")):
        assert "<script" not in content
    assert b"<script" not in files["summary.md"]
    rows = list(csv.reader(io.StringIO(files["matrix.csv"].decode())))
    assert not [field for row in rows for field in row if field.startswith(("=", "+", "-", "@"))]
    assert set(files) == {
        "bad-ranges.json", "badge.json", "badge.svg", "changes.atom", "junit.xml", "matrix.csv", "matrix.json", "summary.md",
    }  # fmt: skip


def test_equal_results_give_equal_files_whatever_their_order(tmp_path: Path) -> None:
    found = grid(GRID)
    cells = [replace(each, records=list(reversed(each.records))) for each in found.cells]
    assert written(tmp_path / "a", found) == written(tmp_path / "b", replace(found, cells=cells))
