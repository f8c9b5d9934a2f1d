"""The page of guards: where each is needed, and from which floor on it may go."""

from __future__ import annotations

from tests.builders import cell, grid, record, result
from tests.pages import Page, site, words

WITHOUT = "fallbacks.rms_norm_default_eps_native"


def test_the_page_says_when_a_guard_may_go() -> None:
    made = site(grid({WITHOUT: {"2.4.1": "wrong", "2.6.0": "wrong", "2.7.1": "pass"}}))
    text = Page(made["guards.html"]).words
    assert "May go once your floor is torch 2.7 rms_norm by torch.nn.functional.rms_norm" in text
    assert "needed on 2.4 to 2.6 (wrong); droppable once the floor is 2.7 fallbacks.rms_norm_default_eps_native" in text
    assert '<td colspan="2" class="wrong"><span aria-hidden="true">✕</span> needed, silent</td>' in made["guards.html"]
    assert "was measured on cpu; another device may need it longer" in text
    assert "guards.html#rms_norm" in made["search/entries-0.js"]


def test_the_device_that_needs_it_longest_decides() -> None:
    verdicts = {cell("2.4.1"): "pass", cell("2.7.1"): "pass", cell("2.4.1", "cuda"): "wrong", cell("2.7.1", "cuda"): "pass"}
    rows = [(where, [record(where, WITHOUT, verdict)]) for where, verdict in verdicts.items()]
    assert "May go once your floor is torch 2.7 rms_norm" in words(result(*rows), "guards.html")


def test_of_several_ways_the_one_that_works_first_decides() -> None:
    rows = {
        "fallbacks.amp_spelling_native[amp.GradScaler]": {"2.2.2": "raises", "2.3.1": "pass", "2.4.1": "pass"},
        "fallbacks.amp_spelling_native[cuda.amp.GradScaler]": {"2.2.2": "pass", "2.3.1": "pass", "2.4.1": "raises"},
    }
    text = words(grid(rows), "guards.html")
    assert "May go once your floor is torch 2.3 grad_scaler by torch.amp.GradScaler" in text
    assert "needed on 2.4 (raises); not droppable yet" in text


def test_a_case_that_the_device_cannot_run_says_nothing() -> None:
    refused = record(cell("2.4.1", "meta"), WITHOUT, "unsupported", stage="collect", reason="needs values, and meta holds none")
    assert "No case without a guard was measured." in words(result((cell("2.4.1", "meta"), [refused])), "guards.html")


def test_guards_without_records_are_not_measured() -> None:
    text = words(grid({"init.x": {"2.4.1": "pass"}}), "guards.html")
    assert "No case without a guard was measured." in text
    assert "rms_norm" in text.partition("Not measured without it")[2]


def test_a_floor_that_is_a_release_candidate_is_named_whole() -> None:
    text = words(grid({WITHOUT: {"2.7.1": "wrong", "2.8.0rc1": "pass"}}), "guards.html")
    assert "May go once your floor is torch 2.8.0rc1" in text
