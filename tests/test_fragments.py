"""Fragments: one small page per case, for an iframe."""

from __future__ import annotations

import re

from tests.builders import cell, grid, record, result
from tests.pages import GRID, Page, site

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script>\u202e\x1b[0m{{7*7}}'


def fragments(made: dict[str, str]) -> dict[str, str]:
    return {address: text for address, text in made.items() if address.startswith("fragments/")}


def test_each_case_has_a_fragment_that_says_where_it_passes() -> None:
    made = fragments(site(grid(GRID)))
    assert len(made) == len(GRID)
    text = next(Page(html).words for address, html in made.items() if address.startswith("fragments/init.x-a"))
    assert "cpu ==2.1.* 2.1.2 ✓ pass 2.10.0 to 2.11.0 ✕ wrong" in text


def test_a_fragment_needs_no_other_file_and_leaves_its_frame_by_a_link() -> None:
    for html in fragments(site(grid(GRID))).values():
        page = Page(html)
        tags = [tag for tag, _ in page.tags]
        assert not {"script", "img", "iframe", "form"} & set(tags)
        assert [attributes for tag, attributes in page.tags if tag == "link"] == [{"rel": "icon", "href": "data:,"}]
        assert [attributes["target"] for tag, attributes in page.tags if tag == "a"] == ["_top"]
        assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
        assert len(html.encode()) < 4000


def test_hostile_ids_stay_text_in_a_fragment() -> None:
    made = fragments(site(result((cell("2.9.1"), [record("2.9.1", f"init.x[{HOSTILE}]", "wrong", reason=HOSTILE)]))))
    (html,) = made.values()
    assert not {"script", "img"} & {tag for tag, _ in Page(html).tags}
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", html)
    assert "{{7*7}}" in html
