"""The report: what it says, that hostile text stays text, and that equal results give equal bytes."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conformance.columns import groups
from conformance.expectations import Expectation, parse
from conformance.gate import judge
from conformance.report import build, page
from conformance.report.headline import headline
from conformance.report.page import pages
from conformance.report.summary import summary
from conformance.report.terminal import show, table
from conformance.results import CellResult, Problem, ResultSet
from tests.builders import cell, collected, environment, grid, record, result
from tests.test_expectations import LINK, TODAY, entry

GRID = {
    "init.x[a]": {"2.1.2": "pass", "2.10.0": "wrong"},
    "init.x[b]": {"2.1.2": "pass", "2.10.0": "pass"},
    "trace.y": {"2.10.0": "unsupported"},
}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}{% raw %}|&amp;\x1b[31m\x00\u202e]]> @team ::error::"


class Page(HTMLParser):
    """The tags, the attributes and the text of a page."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data

    def words(self) -> str:
        return " ".join(self.text.split())


def index(found: ResultSet, expectations: list[Expectation] | None = None) -> str:
    entries = expectations or []
    return pages(found, entries, judge(found, entries, TODAY))["index.html"]


def test_build_writes_all_and_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    found = grid(GRID)
    judgement = judge(found, [], TODAY)
    assert build(found, [], judgement, tmp_path / "a") == tmp_path / "a" / "site" / "index.html"
    shuffled = ResultSet(
        [replace(each, records=each.records[::-1], environment=dict(reversed(each.environment.items()))) for each in found.cells]
    )
    build(shuffled, [], judgement, tmp_path / "b")
    for name in ("site/index.html", "matrix.csv", "summary.md", "badge.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with (tmp_path / "a" / "matrix.csv").open(newline="") as stream:
        assert [row["torch"] for row in csv.DictReader(stream)] == ["2.1.2", "2.1.2", "2.10.0", "2.10.0", "2.10.0"]
    assert json.loads((tmp_path / "a" / "badge.json").read_text()) == {
        "schemaVersion": 1,
        "label": "conformance",
        "message": "2 torch releases, 1 deviating",
        "color": "red",
    }


def test_the_page_answers_first() -> None:
    parsed = Page(index(grid(GRID)))
    answer = "1 of 5 results deviates (1 wrong), none of them expected."
    assert f"{answer} Measured 3 cases on 2 torch releases (2.1.2 to 2.10.0), cpu on 30 November 2026." in parsed.words()
    ids = [attributes["id"] for tag, attributes in parsed.tags if tag == "section"]
    assert ids == ["summary", "deviations", "bits", "cases", "environments", "gate"]


def test_the_full_table_holds_what_was_measured() -> None:
    html = index(grid(GRID))
    rows = re.findall(r'<tr class="([^"]*)"><th scope="row"><code>(.*?)</code>(.*?)</th>(.*?)</tr>', html, re.DOTALL)
    cells = {case: re.findall(r'<td(?: class="(\w+)")?>', body) for _, case, _, body in rows}
    assert cells == {"init.x[a]": ["pass", "wrong"], "init.x[b]": ["pass", "pass"], "trace.y": ["", "unsupported"]}
    assert [kind.split() for kind, *_ in rows] == [["dev", "vary"], [], []]
    heads = [re.sub("<[^>]+>", "", head).strip() for _, _, head, _ in rows]
    assert heads == ["passes ==2.1.*", "passes &gt;=2.1", "passes nowhere (tested 2.10.0)"]
    assert re.findall(r'<a href="#env-[^"]*">([\d.]+)</a>', html)[:2] == ["2.1.2", "2.10.0"]
    assert '<summary><span aria-hidden="true">✕</span> wrong</summary><div><p>wrong here</p></div>' in html


def test_the_page_is_self_contained_and_small_in_script() -> None:
    parsed = Page(index(grid(GRID)))
    for tag, attributes in parsed.tags:
        assert tag not in ("iframe", "object", "embed", "base")
        assert "src" not in attributes
        if tag == "link":
            assert attributes == {"rel": "icon", "href": "data:,"}
    script = page.TEMPLATES / "page.js"
    assert script.stat().st_size < 5000
    assert "http" not in script.read_text() + (page.TEMPLATES / "style.css").read_text()
    assert all("scope" in attributes for tag, attributes in parsed.tags if tag == "th")


def hostile_results() -> ResultSet:
    where = cell("2.4.1")
    row = record(
        where,
        f"init.x[{HOSTILE}]",
        "wrong",
        family=HOSTILE,
        subject=HOSTILE,
        environment=HOSTILE,
        reason=HOSTILE,
        output_tail=HOSTILE,
        signal=HOSTILE,
        exception={"type": HOSTILE, "message": HOSTILE},
        blame={"file": HOSTILE, "line": HOSTILE, "source": HOSTILE},
        observations={HOSTILE: {"kind": "text", "value": HOSTILE}, "d": {"kind": "digest", "digest": HOSTILE}, "odd": 7},
        started_at=HOSTILE,
    )
    facts: dict[str, Any] = environment(
        where, reason=HOSTILE, status=HOSTILE, torch={"version": HOSTILE}, cpu={"model": HOSTILE, "capability": HOSTILE}
    )
    facts["environments"] = {HOSTILE: {"freeze": [HOSTILE]}, "odd": 3}
    listed = collected([row], {row["case"]: HOSTILE})
    other = record("2.10.0", f"init.x[{HOSTILE}]", family=HOSTILE, observations={"d": {"kind": "digest", "digest": "x"}})
    cells = [CellResult(where, facts, listed, [row]), CellResult(cell("2.10.0"), {}, {}, [other])]
    return ResultSet(cells, None, [Problem(HOSTILE, 3, HOSTILE)], {HOSTILE: [HOSTILE, HOSTILE]})


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    found = hostile_results()
    entries = parse(entry(case='"init.*"', reason=json.dumps(HOSTILE.replace("\x00", "")).replace("\\u202e", "")), "e.toml")
    judgement = judge(found, entries, TODAY)
    build(found, entries, judgement, tmp_path)
    for path in (tmp_path / "site").iterdir():
        html = path.read_text("utf-8")
        assert [tag for tag, _ in Page(html).tags].count("script") == 1
        assert "img" not in {tag for tag, _ in Page(html).tags}
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", html)
        assert "{{7*7}}" in html
        assert not any(name.startswith("on") for _, attributes in Page(html).tags for name in attributes)
    markdown = (tmp_path / "summary.md").read_text("utf-8")
    assert "<script" not in markdown
    assert "@team" not in markdown
    assert not re.search(r"(?m)^\s*::", markdown)
    assert all(line.count("|") - line.count("\\|") == 6 for line in markdown.splitlines() if line.startswith("| ✕ wrong"))
    shown = table(found, entries, width=80)
    assert all(character.isprintable() or character == "\n" for character in shown)


def test_expectations_stand_beside_and_hide_nothing() -> None:
    entries = parse(entry(case='"init.x[*"', torch='">=2.10"'), "e.toml")
    html = index(grid(GRID), entries)
    assert "1 of 5 results deviates (1 wrong), all of them expected." in Page(html).words()
    assert '<td class="wrong"><details><summary><span aria-hidden="true">✕</span> wrong <abbr title="expected">e</abbr></summary>' in html
    assert html.count(LINK) >= 2
    assert "review 2027-03-01" in html


def bits(**digests: str) -> ResultSet:
    cells = []
    for release, letters in digests.items():
        where = cell(release[1:].replace("_", "."))
        names = ["float32-trunc_normal_", "float32-normal_"]
        seen = [
            {"bits": {"kind": "tensor", "digest": letter, "dtype": "float32", "shape": [4], "stride": [1], "values": []}}
            for letter in letters
        ]
        cells.append((where, [record(where, f"init.bits[{name}]", observations=each) for name, each in zip(names, seen, strict=True)]))
    return result(*cells)


def test_what_changes_its_bits_is_said_in_a_sentence() -> None:
    found = bits(v2_1_2="aa", v2_11_0="aa", v2_12_1="ba", v2_15_0="ba")
    words = Page(index(found)).words()
    assert "float32 trunc_normal_ changes its bits at 2.12.1 (equal from 2.1.2 to 2.11.0)" in words
    assert "A 2.1.2 to 2.11.0B 2.12.1 to 2.15.0" in words
    assert "float32 normal_: 2.1.2 to 2.15.0" in words
    assert "1 observation is equal wherever measured" in words
    assert "- float32 trunc_normal_ changes its bits at 2.12.1 (equal from 2.1.2 to 2.11.0)\n" in summary(
        found, [], judge(found, [], TODAY)
    )


def test_bits_of_two_pythons_that_differ_are_told() -> None:
    older = cell("2.4.1", python="3.10")
    rows = {
        where: [record(where, "init.bits[a]", observations={"bits": {"digest": letter}})]
        for where, letter in ((older, "a"), (cell("2.4.1"), "b"))
    }
    assert "two cells of 2.4.1 differ" in Page(index(result(*rows.items()))).words()


def test_columns_that_nobody_measured_say_so() -> None:
    lost = [record("2.10.0", "init.inits", "missing", stage="collect", reason="planned, and nothing came back")]
    found = result((cell("2.9.0"), [record("2.9.0", "init.x")]), (cell("2.10.0"), lost))
    html = index(found)
    assert html.count('<td class="none">not measured</td>') == 1
    assert "1 planned cell not measured" in html
    assert "not measured" in table(found, [], width=80)
    assert "Nothing was measured." in Page(index(ResultSet())).words()


def test_a_file_without_cases_counts_as_an_unknown_number() -> None:
    rows = [record("2.9.0", "init.inits", "error", stage="install", reason="no wheel")]
    assert "1 whole file: number of cases unknown" in Page(index(result((cell("2.9.0"), rows)))).words()


def test_a_case_that_was_judged_at_collection_is_no_file() -> None:
    rows = [record("2.9.0", "init.values", "unsupported", stage="collect", reason="needs values, and meta holds none")]
    words = Page(index(result((cell("2.9.0", "meta"), rows)))).words()
    assert "number of cases unknown" not in words
    assert "Measured 1 case" in words


def test_problems_conflicts_and_what_is_off_are_shown() -> None:
    found = replace(
        grid(GRID, controls={"ok": False, "off": ["control.must_fail"]}), problems=[Problem("a/records.jsonl", 3, "is cut off")]
    )
    words = Page(index(replace(found, conflicts={str(cell("2.9.0")): ["aaa", "bbb"]}))).words()
    assert "a/records.jsonl:3 is cut off" in words
    assert f"conflict {cell('2.9.0')}: 2 different results" in words
    assert "off: control.must_fail" in words
    assert "Part of the results could not be read or believed: 2 problems" in words
    assert "Records are incomplete" in words


def test_many_results_get_a_page_per_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ONE_PAGE", 4)
    found = grid({**GRID, "../../etc.z": {"2.10.0": "pass"}})
    made = pages(found, [], judge(found, [], TODAY))
    assert set(made) == {"index.html", "family-init.html", "family-trace.html", "family-2.html"}
    assert "<code>init.x[a]</code>" in made["family-init.html"]
    assert 'href="family-init.html"' in made["index.html"]
    assert 'class="cases"' not in made["index.html"]
    for html in made.values():
        Page(html)


def test_the_summary_fits_a_job_and_counts_what_it_leaves_out() -> None:
    rows = [record("2.4.1", f"init.x[{number}]", "wrong", reason=chr(97 + number % 26) * 3000) for number in range(2000)]
    found = result((cell("2.4.1"), rows))
    text = summary(found, [], judge(found, [], TODAY))
    assert len(text.encode()) < 200_000
    assert "and 1950 more: see the report" in text
    assert text.count("| ✕ wrong |") == 1 + 50


def test_the_terminal_table_breaks_at_the_width() -> None:
    found = grid({"init.x": {f"2.{minor}.0": "pass" if minor % 3 else "wrong" for minor in range(30)}})
    text = table(found, [], width=60)
    assert all(len(line) <= 60 for line in text.splitlines()[3:-1])
    assert [head for line in text.splitlines() for head in re.findall(r"\b2\.\d+\.0\b", line) if line.startswith("  ")] == [
        f"2.{n}.0" for n in range(30)
    ]
    assert "\x1b" not in text


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, painted, refused = io.StringIO(), Terminal(), Terminal()
    show(grid(GRID), [], plain)
    show(grid(GRID), [], painted)
    monkeypatch.setenv("NO_COLOR", "1")
    show(grid(GRID), [], refused)
    assert "\x1b[31;1m1✕\x1b[0m" in painted.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", painted.getvalue()) == plain.getvalue() == refused.getvalue()


@pytest.mark.parametrize(
    ("outcomes", "answer"),
    [
        ({"2.9.0": "pass", "2.10.0": "pass"}, "None of 2 results deviates."),
        ({"2.9.0": "wrong", "2.10.0": "crash"}, "2 of 2 results deviate (1 wrong, 1 crash), none of them expected."),
        ({}, "There is no result to speak of."),
    ],
)
def test_the_answer_in_a_sentence(outcomes: dict[str, str], answer: str) -> None:
    assert headline(groups(grid({"init.x": outcomes})), []).answer == answer
