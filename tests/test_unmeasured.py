"""What nobody measured: how pages tell it from what is not supported, and from what the other columns have."""

from __future__ import annotations

import pytest

from conformance.report.oppage import OpLine
from tests.builders import cell, grid, record, result
from tests.pages import Page, site, words


def test_a_release_that_nothing_was_compared_with_says_so() -> None:
    alone = (cell("2.9.0", "xla"), [record(cell("2.9.0", "xla"), "init.x")])
    both = [(each.cell, each.records) for each in grid({"init.x": {"2.8.0": "pass", "2.10.0": "pass"}}).cells]
    assert "2.10.0 none none 2.9.0 nothing to compare with 2.8.0 the oldest measured" in words(result(*both, alone))


def test_a_column_that_lacks_a_part_of_a_family_says_so() -> None:
    rows = {f"mps.op[{number}]": {"2.9.0": "pass", **({"2.10.0": "pass"} if number < 5 else {})} for number in range(20)}
    assert "✓ 5 pass ; 15 of 20 not measured ✓ 20 pass" in words(grid(rows))
    few = {f"mps.op[{number}]": {"2.9.0": "pass", **({"2.10.0": "pass"} if number < 19 else {})} for number in range(20)}
    assert "1 of 20 not measured" not in words(grid(few))


def test_pages_tell_what_was_not_asked_from_what_was_not_measured_and_not_supported() -> None:
    lost = (cell("2.11.0"), [record("2.11.0", "init.inits", "missing", stage="collect", reason="planned, and nothing came back")])
    rows = {
        "init.x": {"2.9.0": "pass", "2.10.0": "pass"},
        "init.y": {"2.10.0": "unsupported"},
        "lowering.z": {"2.9.0": "unsupported", "2.10.0": "pass"},
        "lowering.w": {"2.10.0": "pass"},
    }
    cells = [(each.cell, each.records) for each in grid(rows).cells]
    for each in (row for _, records in cells for row in records):
        each.update(subject="gpt" if each["case"] == "init.y" else None, stage="compare" if each["verdict"] == "pass" else each["stage"])
    made = site(result(*cells, lost))
    legend = "· not asked: the release was measured there without this case"
    for page in ("families/init.html", "cases/init.y.html", "models.html", "lowering.html"):
        assert legend in Page(made[page]).words, page
    assert "· not measured \N{EN DASH} unsupported · not asked" in Page(made["cases/init.y.html"]).words
    assert "\N{EN DASH} 1 unsupported · not asked" in Page(made["models.html"]).words
    assert "\N{EN DASH} unsupported" in Page(made["lowering.html"]).words.partition("Where cases stopped")[2]
    assert "· not asked" in Page(made["lowering.html"]).words.partition("Where cases stopped")[2]


@pytest.mark.parametrize(
    ("name", "spelt"),
    [("linalg_qr", "aten::linalg_qr torch.linalg.qr"), ("gelu", "aten::gelu torch.gelu torch.nn.functional.gelu")],
)
def test_the_page_of_operators_is_searched_by_the_names_that_people_use(name: str, spelt: str) -> None:
    assert OpLine(name, "", [], []).spellings == spelt
    html = site(result((cell("2.15.0"), [record("2.15.0", "mps.op[gelu-float32]")])))["operators.html"]
    assert f"<span hidden>{spelt}</span>" in html
    assert html.index('<dl class="legend">') < html.index("<table")
