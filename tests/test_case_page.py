"""The page of one case: what it asks, what came out, how to see it happen, and what to tell upstream."""

from __future__ import annotations

from conformance.config import builtin_cases
from conformance.report.sources import SourceFile, case_sources
from tests.builders import cell, grid, record, result
from tests.pages import GRID, SOURCE, Page, observed, site


def test_a_case_page_has_source_idioms_and_commands() -> None:
    made = site(grid(GRID), files=[SOURCE])
    address = next(each for each in made if each.startswith("cases/init.x-a"))
    page = Page(made[address])
    assert "pytorch/pytorch#123. Since 2.1; until then none." in page.words
    assert "https://github.com/pytorch/pytorch/issues/123" in page.links
    assert "../sources/init.xs.html#L17" in page.links
    assert "✕ wrong drops_it def drops_it(letter):" in page.words
    assert "! raises shouts def shouts(letter):" in page.words
    assert "✓ right rms_norm conformance/guards/norms.py def rms_norm(" in page.words
    assert "conformance run --only torch2.11.0-py3.11-cpu-linux_x86_64 --case 'init.x[a]'" in page.words
    assert "✓ pass → ✕ wrong last good 2.1.2, first bad 2.10.0" in page.words
    assert "On torch 2.11.0 (cpu): it runs and gives a different answer, without an error (`wrong here`)." in page.words
    assert "| cpu | 2.10.0 to 2.11.0 | wrong |" in page.words


def test_a_case_that_never_deviates_offers_no_issue() -> None:
    made = site(grid(GRID))
    page = next(Page(text) for address, text in made.items() if address.startswith("cases/init.x-b"))
    assert "Report it upstream" not in page.words
    assert "The source of this case was not at hand" in page.words


def test_numbers_are_drawn_and_told() -> None:
    values = {"2.1.2": 3, "2.10.0": 3, "2.11.0": 0.5}
    cells = [observed(cell(each), "compile.x", "breaks", kind="number", value=value, better="lower") for each, value in values.items()]
    html = site(result(*cells))["cases/compile.x.html"]
    assert 'aria-label="breaks: 3 on 2.1.2 to 2.10.0, 0.5 on 2.11.0"' in html
    assert html.count("<circle") == 3
    assert "lower is better" in html
    assert "▲ better" in site(result(*cells))["releases/2.11.0.html"]


def test_a_release_that_lacks_the_number_parts_its_neighbours() -> None:
    cells = [observed(cell(each), "compile.x", "breaks", kind="number", value=3, better="lower") for each in ("2.1.2", "2.11.0")]
    other = (cell("2.10.0"), [record("2.10.0", "compile.y")])
    assert "breaks: 3 on 2.1.2, 2.11.0" in Page(site(result(*cells, other))["cases/compile.x.html"]).words


def test_a_long_observation_is_there_whole() -> None:
    long = "a graph break at line 3; " * 40
    html = site(result(observed(cell("2.11.0"), "compile.x", "reasons", kind="text", value=long)))["cases/compile.x.html"]
    assert long.strip() in Page(html).words
    assert "more characters" not in html


def test_what_is_cut_says_where_it_is_whole() -> None:
    blame = {"file": "x.py", "line": 3, "source": "f(" + "a, " * 400 + ")"}
    html = site(result((cell("2.11.0"), [record("2.11.0", "init.x", "wrong", reason="r" * 700, blame=blame)])))["cases/init.x.html"]
    assert "100 more characters in matrix.csv" in Page(html).words
    assert "more characters in the cell's records" in Page(html).words


def test_a_record_without_the_parameters_of_its_case_has_a_page_and_no_script() -> None:
    path = builtin_cases() / "mps" / "test_backward.py"
    file = SourceFile("mps.backward", "mps/test_backward.py", path.read_text(encoding="utf-8"), path)
    made = site(grid({case: {"2.15.0": "wrong"} for case in case_sources([file])}), files=[file])
    assert "cases/mps.layer_backward_minds_strides.html" in made
    assert "scripts/mps.layer_backward_minds_strides.py" not in made
