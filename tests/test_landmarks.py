"""What a screen reader goes by: headings that skip no level, and landmarks that each have a name of their own."""

from __future__ import annotations

import re

import pytest

from conformance.report import deviationpages, familypages, releasepages
from conformance.results import ResultSet
from tests.builders import cell, record, result
from tests.pages import SOURCE, Page, site


def results() -> ResultSet:
    """Two devices, a model, a ladder, numbers that moved, and enough of everything for pages in parts."""
    cells = []
    for device in ("cpu", "meta"):
        for release, verdict, value in (("2.9.0", "pass", 1), ("2.10.0", "wrong", 2)):
            where = cell(release, device)
            seen = {"breaks": {"kind": "number", "value": value, "better": "lower"}}
            rows = [record(where, f"init.x[{each}]", verdict, reason="" if verdict == "pass" else f"no {each}") for each in "abcdef"]
            rows += [record(where, f"init.number_{each}", observations=seen) for each in "ab"]
            rows += [record(where, f"lowering.{each}", verdict, stage="lower", subject=each) for each in ("gpt", "opt")]
            cells.append((where, rows))
    return result(*cells)


def names(html: str) -> list[str]:
    """What the landmarks of a page are called, each with its role; a heading that labels one by its text."""
    texts = {name: re.sub(r"<[^>]*>", "", text) for name, text in re.findall(r'<h\d id="([^"]*)">(.*?)</h\d>', html)}
    found = []
    for tag, attributes in Page(html).tags:
        label = attributes.get("aria-label") or texts.get(str(attributes.get("aria-labelledby")))
        implied = {"nav": "navigation", "section": "region"}.get(tag, "") if label else ""
        if role := attributes.get("role") or implied:
            found.append(f"{role} {label}")
    return [each for each in found if each.startswith(("region", "navigation"))]


def headings(page: Page) -> list[int]:
    """The levels of its headings."""
    return [int(tag[1]) for tag, _ in page.tags if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()]


def test_headings_skip_no_level_and_landmarks_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, budget in ((familypages, 12), (deviationpages, 8), (releasepages, 24)):
        monkeypatch.setattr(module, "BUDGET", budget)
    made = {address: text for address, text in site(results(), files=[SOURCE]).items() if address.endswith(".html")}
    assert {"families/init--2.html", "deviations--2.html", "releases/2.10.0--2.html"} <= made.keys()
    for address, page in made.items():
        levels = headings(Page(page))
        assert all(after <= before + 1 for before, after in zip([0, *levels], levels)), (address, levels)
        landmarks = names(page)
        assert len(set(landmarks)) == len(landmarks), (address, landmarks)
