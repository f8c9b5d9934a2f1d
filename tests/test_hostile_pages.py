"""Records full of markup, control characters and long text: nothing runs, nothing breaks, and it is there to be read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.expectations import parse
from conformance.gate import judge
from conformance.report import build
from conformance.report.terminal import table
from conformance.results import CellResult, Problem, ResultSet
from tests.builders import cell, collected, environment, record, result
from tests.pages import Page, site
from tests.test_expectations import TODAY, entry

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}{% raw %}|&amp;\x1b[31m\x00\u202e]]> @team ::error::"


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
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 8
    for path in pages:
        html = path.read_text("utf-8")
        _is_inert(html, scripts=0 if path.parent.name == "fragments" else 1)
        assert path.resolve().is_relative_to(tmp_path.resolve())
        assert re.fullmatch(r"[a-z0-9._-]{1,120}", path.name)
    markdown = (tmp_path / "summary.md").read_text("utf-8")
    assert "<script" not in markdown
    assert "@team" not in markdown
    assert not re.search(r"(?m)^\s*::", markdown)
    assert all(line.count("|") - line.count("\\|") == 6 for line in markdown.splitlines() if line.startswith("| ✕ wrong"))
    shown = table(found, entries, width=80)
    assert all(character.isprintable() or character == "\n" for character in shown)


def _is_inert(html: str, scripts: int = 1) -> None:
    """Whether a page holds only what our templates put there: our script, no image, no handler, no character that hides."""
    page = Page(html)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == scripts
    assert not {"img", "iframe", "object", "embed", "base"} & set(names)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", html)
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert not str(attributes.get("href", "")).startswith(("javascript:", "data:text"))
        assert "src" not in attributes or (tag == "script" and str(attributes["src"]).endswith("site.js"))


def test_hostile_text_is_there_to_be_read() -> None:
    made = site(hostile_results())
    address = next(each for each in made if each.startswith("cases/"))
    text = Page(made[address]).text
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>" in text
    assert "{{7*7}}{% raw %}" in text
    assert "\\u202e" in text


@pytest.mark.parametrize(
    "reason",
    ["x" * 1_000_000, "</script><!--" * 1000, "\u05e9\u05dc\u05d5\u05dd \u202e\u2067abc", "a\nb\r\n\tc\x00\x1b]8;;x\x07", "\ud800"],
    ids=["a megabyte", "ends of scripts", "right to left", "control characters", "lone surrogate"],
)
def test_any_reason_gives_pages_of_a_sane_size(reason: str) -> None:
    made, plain = (_site_with(each) for each in (reason, "plain"))
    for address, text in made.items():
        assert len(text.encode()) - len(plain.get(address, "").encode()) < 25_000, address
        if address.endswith(".html"):
            _is_inert(text, scripts=0 if address.startswith("fragments/") else 1)
    if len(reason) > 10_000:
        assert "more characters in matrix.csv" in made["cases/init.x.html"]


def _site_with(reason: str) -> dict[str, str]:
    return site(result((cell("2.4.1"), [record("2.4.1", "init.x", "wrong", reason=reason, output_tail=reason)])))


def test_search_files_hold_no_markup() -> None:
    for address, text in site(hostile_results()).items():
        if address.startswith("search/"):
            assert "<" not in text
            call, _, value = text.removesuffix(");\n").partition("(")
            assert call == "conformanceSearch"
            json.loads(f"[{value}]")
