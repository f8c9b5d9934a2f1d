"""The site in a real browser, from the file system: it opens, asks nobody for anything, and works by keyboard and without script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conformance.report import familypages
from conformance.report.folder import write
from conformance.results import ResultSet
from tests.builders import cell, grid, record
from tests.chromium import chromium
from tests.pages import SOURCE, site
from tests.test_hostile_pages import hostile_results

pytestmark = pytest.mark.slow

ROWS = {
    "init.x[a]": {"2.1.2": "pass", "2.10.0": "wrong", "2.11.0": "wrong"},
    "init.x[b]": {"2.1.2": "pass", "2.10.0": "pass", "2.11.0": "pass"},
    "init.writes[gpt]": {"2.1.2": "raises", "2.10.0": "crash", "2.11.0": "timeout"},
    "trace.y": {"2.1.2": "error", "2.10.0": "unsupported", "2.11.0": "unexercised"},
    "mps.op[abs-float32]": {"2.1.2": "pass", "2.10.0": "raises", "2.11.0": "pass"},
    "fallbacks.rms_norm_default_eps_native": {"2.1.2": "unsupported", "2.10.0": "wrong", "2.11.0": "pass"},
}
PAGES = ("index.html", "families/init.html", "CASE", "releases/2.11.0.html", "guards.html", "bits.html", "models.html", "subjects/gpt.html",
         "deviations.html", "environments.html", "lowering.html", "operators.html",
         "sources/init.xs.html", "search.html?q=init")  # fmt: skip


def results() -> ResultSet:
    """A little of everything, hostile text too."""
    found = grid(ROWS)
    for each in found.cells:
        for row in each.records:
            row["subject"] = "gpt" if "gpt" in row["case"] else None
        seen = {
            "bits": {"kind": "tensor", "digest": str(each.cell.version.minor > 9)},
            "breaks": {"kind": "number", "value": 3, "better": "lower"},
        }
        each.records.append(record(each.cell, "init.bits[normal_]", observations=seen))
        each.records.append(
            record(each.cell, "lowering.subject_lowers[gpt-script]", "raises", stage="lower", subject="gpt", reason="no op here")
        )
    hostile = hostile_results()
    return ResultSet([*found.cells, *(each for each in hostile.cells if each.cell != cell("2.10.0"))], None, hostile.problems)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site."""
    folder = tmp_path_factory.mktemp("report") / "site"
    write(folder, site(results(), files=[SOURCE]).items())
    return folder


@dataclass
class Visit:
    """One tab: where it may go, and all that went wrong in it."""

    browser: Any
    root: Path
    faults: list[str] = field(default_factory=list)

    def open(self, address: str, **options: Any) -> Any:
        """A page of the site in a tab of its own."""
        page = self.browser.new_context(**options).new_page()
        page.on("console", lambda message: self.faults.append(f"{address}: {message.text}") if message.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(f"{address}: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"{address}: a dialog, {dialog.message}"))
        page.on("request", lambda request: self._asked(address, request.url))
        page.goto(self.url(address))
        return page

    def url(self, address: str) -> str:
        """The URL of a page."""
        case = next((path.name for path in self.root.glob("cases/init.x-a-*")), "")
        return f"{self.root.as_uri()}/{address.replace('CASE', f'cases/{case}')}"

    def _asked(self, address: str, url: str) -> None:
        if not url.startswith((self.root.as_uri(), "data:,")):
            self.faults.append(f"{address}: asked for {url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: Any, root: Path) -> Iterator[Visit]:
    made = Visit(browser, root)
    yield made
    for context in browser.contexts:
        context.close()
    assert made.faults == []


def test_every_page_opens_from_the_file_system_and_asks_nobody(visit: Visit) -> None:
    hostile = [f"cases/{path.name}" for path in visit.root.glob("cases/*script*")]
    assert hostile
    for address in (*PAGES, *hostile):
        page = visit.open(address)
        assert page.locator("h1").count() == 1
        assert page.locator("img, iframe").count() == 0
        page.context.close()


def test_all_verdicts_are_there_without_script(visit: Visit) -> None:
    page = visit.open("families/init.html", java_script_enabled=False)
    assert page.locator("tbody tr:has(code)").count() == 4
    assert page.get_by_text("✕ wrong", exact=False).first.is_visible()
    for verdict in ("raises", "crash", "timeout", "pass"):
        assert page.locator(f"td.{verdict}").first.is_visible()
    assert not page.locator("form").first.is_visible()
    front = visit.open("index.html", java_script_enabled=False)
    assert front.get_by_text("Search needs JavaScript").is_visible()
    assert front.locator("td.wrong").count() > 1


def test_search_leads_to_a_case_and_back(visit: Visit) -> None:
    page = visit.open("index.html")
    page.fill("#q", "wrong here")
    page.locator("#found li").first.wait_for()
    assert "2 found" in page.locator("#found").inner_text()
    page.locator("#found a", has_text="init.x[a]").click()
    assert "init.x[a]" in page.locator(".lead").inner_text()
    page.go_back()
    page.fill("#q", "rms_norm")
    page.locator("#found a", has_text="rms_norm").first.click()
    assert page.url.endswith("guards.html#rms_norm")


def test_a_search_has_an_address(visit: Visit) -> None:
    page = visit.open("guards.html")
    page.fill("#q", "writes gpt")
    page.keyboard.press("Enter")
    page.locator("#found li").first.wait_for()
    assert page.url.endswith("search.html?q=writes+gpt")
    assert page.locator("#found li").count() == 1
    page.fill("#q", "zzqq qqzz")
    page.get_by_text("Nothing found.").wait_for()
    page.fill("#q", "hasOwnProperty __proto__ constructor")
    page.get_by_text("Nothing found.").wait_for()


def test_a_search_answers_for_a_release_an_operator_and_a_case(visit: Visit) -> None:
    page = visit.open("index.html")
    for text, link, told in (
        ("2.1", "torch 2.1.2", "what changed"),
        ("aten::linalg_qr", "linalg_qr", "on MPS"),
        ("torch.linalg.qr", "linalg_qr", "on MPS"),
        ("rmsnorm", "rms_norm", "found"),
        ("writes gpt 9.9", "init.writes[gpt]", "Nothing has all of it; without 9.9: 1 found"),
        ("writes gpt", "init.writes[gpt]", "passes nowhere"),
    ):
        page.fill("#q", text)
        page.locator("#found", has_text=told).wait_for()
        assert page.locator("#found a").all_inner_texts()[:1] == [link], text
        assert told in page.locator("#found").inner_text()


def test_a_filter_has_an_address_and_a_way_back(visit: Visit) -> None:
    page = visit.open("families/init.html")
    rows = page.locator(".cases tbody:visible")
    assert rows.count() == 4
    page.fill("[name=q] >> nth=-1", "x[")
    assert rows.count() == 2
    page.select_option("[name=rows]", "dev")
    assert rows.count() == 1
    assert page.url.endswith("#q=x%5B&rows=dev")
    rows.locator("a").first.click()
    page.go_back()
    assert rows.count() == 1
    assert page.locator("output").inner_text() == "1 of 4"
    page.go_back()
    page.wait_for_function("document.querySelectorAll('.cases tbody:not([hidden])').length > 1")
    sent = visit.open("families/init.html#rows=vary")
    assert sent.locator(".cases tbody:visible").count() == 2
    sent.select_option("[name=rows]", "dev")
    sent.select_option("[name=at]", "2.10.0")
    assert sent.locator(".cases tbody:visible code").all_inner_texts() == ["init.writes[gpt]", "init.x[a]"]
    assert sent.url.endswith("#rows=dev&at=2.10.0")


def test_a_filter_asks_for_a_kind_of_verdict_on_a_release(visit: Visit) -> None:
    page = visit.open("families/init.html")
    for rows, at, cases in (
        ("wrong", "", ["init.x[a]"]),
        ("wrong", "2.11.0", ["init.x[a]"]),
        ("wrong", "2.1.2", []),
        ("loud", "", ["init.writes[gpt]"]),
        ("crash", "2.10.0", ["init.writes[gpt]"]),
        ("crash", "2.11.0", []),
        ("open", "2.11.0", ["init.writes[gpt]", "init.x[a]"]),
        ("vary", "", ["init.writes[gpt]", "init.x[a]"]),
        ("vary", "2.10.0", []),
        ("", "2.11.0", ["init.bits[normal_]", "init.writes[gpt]", "init.x[a]", "init.x[b]"]),
    ):
        page.select_option("[name=rows]", rows)
        page.select_option("[name=at]", at)
        assert page.locator(".cases tbody:visible code").all_inner_texts() == cases, (rows, at)
        assert page.locator("thead th.chosen").all_inner_texts() == ([at] if at else [])


def test_deviations_have_a_filter_too(visit: Visit) -> None:
    page = visit.open("deviations.html#rows=crash")
    assert page.locator("#kinds .kind:visible .mark").all_inner_texts() == ["▲ crash"]
    page.select_option("[name=rows]", "")
    page.fill(".filter [name=q]", "init.writes")
    assert page.locator("#kinds .kind:visible").count() == 3


def test_the_silent_faults_of_a_family_are_one_key_away_from_the_front_page(visit: Visit) -> None:
    front = visit.open("index.html")
    front.locator("tr:has(a:text-is('init')) td a").first.focus()
    front.keyboard.press("Enter")
    front.wait_for_url("**/init.html#rows=wrong&at=2.11.0&on=cpu")
    assert front.locator(".cases tbody:visible code").all_inner_texts() == ["init.x[a]"]
    assert front.locator("output").inner_text() == "1 of 4"
    front.go_back()
    assert front.url.endswith("index.html")


def test_a_filter_counts_over_all_parts_of_a_table(visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familypages, "BUDGET", 12)
    rows = {f"init.x[{number}]": {"2.10.0": "wrong" if number in (0, 5) else "pass", "2.11.0": "pass"} for number in range(6)}
    write(tmp_path / "site", site(grid(rows)).items())
    visit.root = tmp_path / "site"
    page = visit.open("families/init.html#rows=wrong&at=2.10.0&on=cpu")
    assert page.locator("output").inner_text() == "1 of 3, on this page of 2; 2 on all"
    page.locator(".parts a").first.click()
    assert page.locator("output").inner_text() == "1 of 3, on this page of 2; 2 on all"


def test_the_keyboard_reaches_everything_and_shows_where_it_is(visit: Visit) -> None:
    page = visit.open("families/init.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    seen = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        tag, outline = page.evaluate("[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]")
        seen.add(tag)
        assert outline != "none" or tag == "BODY"
    assert {"A", "INPUT", "SELECT", "DIV"} <= seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(visit: Visit, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed").Axe()
    for address in PAGES:
        page = visit.open(address, color_scheme=scheme)
        page.context.set_default_timeout(60_000)
        found = axe.run(page, options={"preload": False}).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == [], address
        page.context.close()


def test_nothing_is_wider_than_a_phone(visit: Visit) -> None:
    for address in PAGES:
        page = visit.open(address, viewport={"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
        page.context.close()


def test_print_shows_what_the_screen_hides_in_scrolling(visit: Visit) -> None:
    page = visit.open("families/init.html")
    page.emulate_media(media="print")
    assert not page.locator(".filter").is_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('.tall')).maxHeight") == "none"
