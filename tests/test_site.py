"""The site: what each page says of hand-made results."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import configfile, plan
from conformance.expectations import parse
from conformance.report import familypages, releasepages, searchindex
from conformance.report.rendering import TEMPLATES
from conformance.report.sources import case_sources, read_files
from conformance.results import Problem, ResultSet
from tests.builders import cell, grid, record, result
from tests.pages import GRID, SOURCE, Page, observed, site, words
from tests.test_expectations import LINK, entry

#: A case that passes on ten releases.
MANY = dict.fromkeys(("2.0.1", *(f"2.{minor}.1" for minor in range(1, 10))), "pass")


def cells_of(html: str) -> dict[str, list[tuple[str, str]]]:
    """Case -> class and width of each cell of its row in a table of cases."""
    rows = re.findall(r'<th scope="row"[^>]*><a href="[^"]*"><code>(.*?)</code></a>.*?</th>(.*?)</tr>', html, re.DOTALL)
    cells = re.compile(r'<td(?: colspan="(\d+)")? class="([^" ]*)[^"]*"')
    return {case.replace("<wbr>", ""): [(kind, width or "1") for width, kind in cells.findall(body)] for case, body in rows}


def crawl(made: dict[str, str]) -> None:
    """Every link inside a site leads to a file of it, and to an element there."""
    html = {address: Page(text) for address, text in made.items() if address.endswith(".html")}
    ids = {address: {attributes.get("id") for _, attributes in page.tags} for address, page in html.items()}
    for address, page in html.items():
        for link in page.links:
            if link.startswith("https:"):
                continue
            path, _, fragment = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(address), path)) if path else address
            assert target in made, f"{address} -> {link}"
            assert not fragment or "=" in fragment or fragment in ids[target], f"{address} -> {link}"


def test_every_link_leads_to_a_page_that_is_there() -> None:
    meta = cell("2.9.0", "meta")
    cells = [(each.cell, each.records) for each in grid(GRID).cells]
    crawl(site(result(*cells, (meta, [record(meta, "init.x[a]", subject="gpt")])), files=[SOURCE]))


def test_every_link_of_the_built_in_cases_leads_somewhere() -> None:
    files = read_files(plan.case_files(configfile.load(Path(__file__).parent.parent), plan.Selection()))
    crawl(site(grid({case: {"2.14.1": "pass", "2.15.0": "unsupported"} for case in case_sources(files)}), files=files))


def test_the_front_page_answers_first() -> None:
    text = words(grid(GRID))
    assert (
        "2 of 8 results deviate (2 wrong), none of them expected. Measured 3 cases on 3 torch releases (2.1.2 to 2.11.0), cpu on 30" in text
    )
    assert "✕ 1 wrong 1 of 2, 1 new" in text
    assert "Newest: torch 2.11.0" in text
    assert "nothing ran on cuda, mps, xla, xpu, meta: no verdict here speaks of them." in text
    assert "1 result is unsupported" in text


def test_neighbours_that_agree_share_a_cell() -> None:
    cells = cells_of(site(grid(GRID))["families/init.html"])
    assert cells == {"init.x[a]": [("wrong", "2"), ("pass", "1")], "init.x[b]": [("pass", "3")]}  # the newest release first
    assert cells_of(site(grid(GRID))["families/trace.html"]) == {"trace.y": [("pass", "1"), ("unsupported", "1"), ("none", "1")]}


def test_different_reasons_do_not_share_a_cell() -> None:
    reasons = {"2.1.2": "a 1", "2.2.0": "a 2", "2.3.0": "b"}
    found = result(*((cell(release), [record(release, "init.x", "wrong", reason=reason)]) for release, reason in reasons.items()))
    assert cells_of(site(found)["families/init.html"]) == {"init.x": [("wrong", "1"), ("wrong", "2")]}


def test_intervals_and_reasons_stand_with_the_case() -> None:
    text = words(grid(GRID), "families/init.html")
    assert "init.x[a] passes ==2.1.*" in text
    assert "✕ wrong 2.10.0 to 2.11.0: wrong here" in text
    assert "trace.y passes >=2.11 (tested 2.10.0 to 2.11.0, nothing from 2.1.2)" in words(grid(GRID), "families/trace.html")


def test_releases_that_nobody_measured_are_not_claimed() -> None:
    found = grid({"init.x": MANY, "init.rare": dict.fromkeys(("2.0.1", "2.4.1", "2.9.1"), "pass")})
    assert "init.rare passes on 2.0.1, 2.4.1, 2.9.1 (the only three measured)" in words(found, "families/init.html")
    assert "passes on 2.0.1, 2.4.1, 2.9.1 the only three measured" in words(found, "cases/init.rare.html")
    assert "on 2.0.1, 2.4.1, 2.9.1 (the only three measured)" in words(found, "fragments/init.rare.html")


def test_expectations_stand_beside_and_hide_nothing() -> None:
    entries = parse(entry(case='"init.x[*"', torch='">=2.10"'), "e.toml")
    made = site(grid(GRID), entries)
    assert "2 of 8 results deviate (2 wrong), all of them expected." in Page(made["index.html"]).words
    assert '✕</span> wrong <abbr title="expected">e</abbr></td>' in made["families/init.html"]
    assert f'href="{LINK}"' in made["families/init.html"]
    case = next(text for address, text in made.items() if address.startswith("cases/init.x-a"))
    assert "review 2027-03-01" in Page(case).words
    assert "<abbr" not in site(grid(GRID))["families/init.html"].partition('<dl class="legend">')[0]


def test_a_release_page_tells_worse_from_better_by_cause() -> None:
    rows = {
        "init.a": {"2.9.0": "pass", "2.10.0": "wrong"},
        "init.b": {"2.9.0": "pass", "2.10.0": "wrong"},
        "init.c": {"2.9.0": "raises", "2.10.0": "pass"},
        "init.new": {"2.10.0": "pass"},
    }
    text = words(grid(rows), "releases/2.10.0.html")
    assert "3 cases compared: 2 worse, 1 better." in text
    assert "Not measured on 2.9.0: 1 case (init) init.new" in text
    assert "Worse ✓ pass → ✕ wrong wrong here 2 cases init.a init.b Better ! raises → ✓ pass raises here 1 case init.c" in text
    assert "nothing to compare it with" in words(grid(rows), "releases/2.9.0.html")


def test_what_the_release_before_says_nothing_of_is_told_apart() -> None:
    rows = {"init.a": {"2.8.0": "pass", "2.10.0": "wrong"}, "init.b": dict.fromkeys(("2.8.0", "2.9.0", "2.10.0"), "pass")}
    text = words(grid(rows), "releases/2.10.0.html")
    assert "cpu, against 2.9.0 1 case compared: 0 worse, 0 better." in text
    assert "Against older releases 2.9.0 says nothing of these" in text
    assert "init.a (against 2.8.0)" in text
    assert "Since an older release, for 2.9.0 says nothing of it ✕ wrong wrong here init.a" in words(grid(rows))


def test_a_release_that_changed_very_much_has_several_pages_and_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasepages, "BUDGET", 24)
    cells = {}
    for release, verdict, value in (("2.9.0", "pass", 1), ("2.10.0", "wrong", 2)):
        seen = {"breaks": {"kind": "number", "value": value, "better": "lower"}}
        numbers = [record(release, f"init.number_{each:02}", observations=seen) for each in range(40)]
        cells[cell(release)] = [*numbers, *(record(release, f"init.case_{each:02}", verdict) for each in range(20))]
    made = site(result(*cells.items()))
    pages = [Page(text) for address, text in made.items() if address.startswith("releases/2.10.0")]
    assert len(pages) > 4
    told = [link for page in pages for link in page.links if "cases/" in link]
    assert len(told) == len(set(told)) == 60
    assert all("60 cases compared: 20 worse, 0 better." in page.words for page in pages)
    assert all("../releases/2.10.0--2.html" in page.links for page in pages if page is not pages[1])
    assert [address for address in made if address.startswith("releases/2.9.0")] == ["releases/2.9.0.html"]


def test_classes_of_bits_have_one_letter_over_all_devices() -> None:
    digests = {cell("2.1.2"): "p", cell("2.2.0"): "p", cell("2.3.0"): "q", cell("2.3.0", "xla"): "p"}
    case = "init.bits[float32-normal_]"
    made = site(result(*(observed(where, case, "bits", kind="tensor", digest=digest) for where, digest in digests.items())))
    assert re.findall(r'<td(?: colspan="\d+")? class="(class-\w)">', made["bits.html"]) == [
        "class-B",
        "class-A",
        "class-A",
    ]  # the newest first
    assert "float32 normal_ changes its bits at 2.3.0 (equal from 2.1.2 to 2.2.0)" in Page(made["bits.html"]).words


def test_bits_of_two_pythons_that_differ_are_told() -> None:
    digests = {cell("2.4.1", python="3.10"): "a", cell("2.4.1"): "b"}
    rows = [observed(where, "init.bits[a]", "bits", kind="tensor", digest=digest) for where, digest in digests.items()]
    assert "two cells of 2.4.1 differ" in words(result(*rows), "bits.html")


def test_columns_that_nobody_measured_say_so() -> None:
    lost = [record("2.10.0", "init.inits", "missing", stage="collect", reason="planned, and nothing came back")]
    text = words(result((cell("2.9.0"), [record("2.9.0", "init.x")]), (cell("2.10.0"), lost)))
    assert "1 planned cell not measured" in text
    assert "torch2.10.0-py3.11-cpu-linux_x86_64: nothing came back" in text
    assert "Nothing was measured." in words(ResultSet())


def test_a_file_without_cases_counts_as_an_unknown_number() -> None:
    rows = [record("2.9.0", "init.inits", "error", stage="install", reason="no wheel")]
    assert "1 whole file: number of cases unknown" in words(result((cell("2.9.0"), rows)))


def test_a_case_that_was_judged_at_collection_is_no_file() -> None:
    rows = [record("2.9.0", "init.values", "unsupported", stage="collect", reason="needs values, and meta holds none")]
    text = words(result((cell("2.9.0", "meta"), rows)))
    assert "number of cases unknown" not in text
    assert "Measured 1 case" in text


def test_problems_conflicts_and_what_is_off_are_shown() -> None:
    found = replace(
        grid(GRID, controls={"ok": False, "off": ["control.must_fail"]}), problems=[Problem("a/records.jsonl", 3, "is cut off")]
    )
    made = site(replace(found, conflicts={str(cell("2.9.0")): ["aaa", "bbb"]}))
    assert "Part of the results could not be read or believed: 2 problems" in Page(made["index.html"]).words
    assert "Records are incomplete" in Page(made["index.html"]).words
    assert "a/records.jsonl:3 is cut off" in Page(made["deviations.html"]).words
    assert f"conflict {cell('2.9.0')}: 2 different results" in Page(made["deviations.html"]).words
    assert "off: control.must_fail" in Page(made["environments.html"]).words


def test_long_tables_are_split_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familypages, "BUDGET", 30)
    found = grid({f"init.x{number:03}": {"2.9.0": "pass", "2.10.0": "wrong" if number % 3 else "pass"} for number in range(60)})
    made = site(found)
    parts = [address for address in made if address.startswith("families/init")]
    assert len(parts) > 5
    assert sorted(case for address in parts for case in cells_of(made[address])) == sorted(f"init.x{number:03}" for number in range(60))
    for address in parts:
        assert all(f"../{other}" in Page(made[address]).links for other in parts if other != address)


def test_each_part_of_a_long_table_knows_the_counts_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familypages, "BUDGET", 12)
    rows = {f"init.x[{number}]": {"2.10.0": "wrong" if number in (0, 5) else "pass", "2.11.0": "pass"} for number in range(6)}
    made = site(grid(rows))
    links = [attributes for tag, attributes in Page(made["families/init.html"]).tags if tag == "a" and "data-seen" in attributes]
    assert [(each["href"], json.loads(str(each["data-seen"]))) for each in links] == [
        ("../families/init--2.html", {"wrong@2.10.0@": 1}),
    ]
    assert 'href="families/init.html#rows=wrong&amp;at=2.10.0&amp;on=cpu">✕ 2 wrong' in made["index.html"]


def test_a_front_page_of_many_columns_stays_small_and_says_where_the_rest_is() -> None:
    rows = {f"{family}.x": {f"2.{minor}.0": "wrong" for minor in range(70)} for family in ("init", "rope", "mps", "trace", "compile")}
    made = site(grid(rows))
    assert len(made["index.html"].encode()) < 50_000
    assert "cpu the newest 35 of 70 columns; all of them" in Page(made["index.html"]).words
    assert made["overview.html"].count("<td") == 5 * 70


def test_a_count_on_the_front_page_leads_to_the_cases_that_it_counts() -> None:
    links = Page(site(grid(GRID))["index.html"]).links
    assert [link for link in links if "rows=" in link] == [
        "families/init.html#rows=wrong&at=2.11.0&on=cpu",
        "families/init.html#rows=wrong&at=2.10.0&on=cpu",
    ]


def test_what_does_not_fit_is_the_oldest_of_the_longest() -> None:
    rows = {f"{family}.x": {f"2.{minor}.0": "pass" for minor in range(30)} for family in ("init", "rope", "mps", "trace", "compile")}
    few = {cell(f"2.{minor}.0", "meta"): [record(cell(f"2.{minor}.0", "meta"), "init.x")] for minor in range(14)}
    text = words(ResultSet([*grid(rows).cells, *result(*few.items()).cells], None, []))
    assert "cpu the newest 21 of 30 columns; all of them" in text
    assert "meta the newest" not in text


def test_a_model_has_its_whole_story() -> None:
    verdicts = {cell("2.9.0"): "wrong", cell("2.10.0"): "pass"}
    rows = [
        (where, [record(where, "init.writes[gpt]", verdict, subject="gpt", reason="left out"), record(where, "init.x")])
        for where, verdict in verdicts.items()
    ]
    made = site(result(*rows))
    assert cells_of(made["subjects/gpt.html"]) == {"init.writes[gpt]": [("pass", "1"), ("wrong", "1")]}
    assert "✕ 1 wrong of 1" in Page(made["models.html"]).words


def test_search_finds_by_id_title_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searchindex, "BLOCK", 2)
    made = site(grid(GRID))
    found: dict[str, dict[str, Any]] = {"prefixes": {}, "words": {}, "entries": {}}
    for address, text in made.items():
        if address.startswith("search/"):
            kind, key, value = json.loads(f"[{text.removeprefix('conformanceSearch(').removesuffix(');' + chr(10))}]")
            found[kind][str(key)] = value
    named = [entry[1] for key in sorted(found["entries"], key=int) for entry in found["entries"][key]]
    assert [named[number] for number in found["words"]["he"]["here"]][-2:] == ["init.x[a]", "trace.y"]
    assert [named[number] for number in found["words"]["tr"]["trace"]] == ["trace", "is_tracing", "trace.y"]
    assert [named[number] for number in found["words"]["rm"]["rms"]] == ["rms_norm"]
    assert "2.11.0" in named[found["words"]["to"]["torch"][0]]
    assert [named[number] for number in found["words"]["rm"]["rmsnorm"]] == ["rms_norm"]
    assert found["prefixes"]["all"] == sorted(found["words"])


def test_pages_are_self_contained_small_in_script_and_sound() -> None:
    made = site(grid(GRID), files=[SOURCE])
    assert len(made["index.html"].encode()) < 50_000
    assert (TEMPLATES / "site.js").stat().st_size < 8000
    for address, text in made.items():
        if address.endswith(".html"):
            page = Page(text)
            assert all("scope" in attributes for tag, attributes in page.tags if tag == "th"), address
            assert [tag for tag, _ in page.tags].count("h1") == (0 if address.startswith("fragments/") else 1)
            ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
            assert len(ids) == len(set(ids)), address
            for tag, attributes in page.tags:
                if tag in ("link", "script"):
                    assert not str(attributes.get("href", attributes.get("src"))).startswith(("http", "//"))
