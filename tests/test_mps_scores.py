"""Scores against PyTorch's own lists, their digest, and rows of operators: without torch. Real models are audited in slow tests."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import cell, record, result
from conftest import ROOT, project_with, run_conformance

from conformance.incell.upstreamwords import DTYPES, PHASES, WORDS
from conformance.mps import oprows, scores, testlists
from conformance.mps.answers import Needs, answer
from conformance.mps.table import Table, stored
from conformance.mps.testlists import Digest, Lists

TABLE = Table(("2.8.0", "2.9.1"), {"good": "mm", "bad": "nm", "whole": "ii", "deep": "ee"})


def _recording(*seen: Any, aten: str = "", samples: int = 3) -> dict[str, Any]:
    return {"aten": aten, "samples": samples, "failed": "", "seen": [list(each) for each in seen]}


GOOD = ("good", "forward", [], [], 1, [0])
BAD = ("bad", "forward", [], [], 1, [0])
WIDE = ("good", "forward", [], ["float64"], 1, [0])
BACK = ("bad", "backward", [], [], 1, [0])


def _score(word: str, *seen: Any, release: str = "2.8.0", **options: Any) -> scores.Score:
    return scores.score(release, {"op": word}, {"op": _recording(*seen)}, TABLE, **options)


@pytest.mark.parametrize(
    ("word", "seen", "release", "where"),
    [
        ("unsupported", BAD, "2.8.0", "hits"),
        ("pass", BAD, "2.8.0", "alarms"),
        ("unsupported", GOOD, "2.8.0", "misses"),
        ("pass", GOOD, "2.8.0", ""),
        ("pass", BAD, "2.9.1", ""),
        ("unsupported", WIDE, "2.8.0", "hits"),
    ],
)
def test_a_prediction_is_held_against_the_list(word: str, seen: Any, release: str, where: str) -> None:
    made = _score(word, seen, release=release)
    assert {name: getattr(made, name) for name in ("hits", "alarms", "misses") if getattr(made, name)} == ({where: ["op"]} if where else {})
    assert made.count == 1


def test_the_rule_on_float64_is_counted_apart() -> None:
    made = _score("unsupported", WIDE)
    assert (made.recall, made.recall_by_kernels) == (1.0, 0.0)
    assert made.is_good


@pytest.mark.parametrize("word", ["differs", "skip"])
def test_what_is_listed_for_other_reasons_is_not_scored(word: str) -> None:
    assert _score(word, BAD).count == 0


def test_what_never_ran_is_not_scored() -> None:
    assert scores.score("2.8.0", {"op": "pass", "other": "pass"}, {"op": _recording(samples=0)}, TABLE).count == 0


def test_a_backward_is_scored_where_the_forward_runs() -> None:
    assert _score("unsupported", GOOD, BACK, phase="backward").hits == ["op"]
    assert _score("unsupported", BAD, BACK, phase="backward").count == 0


def test_the_score_names_what_was_predicted_wrong() -> None:
    told = "\n".join(scores.lines([_score("pass", BAD)]))
    assert "2.8.0 forward alarms: op" in told
    assert re.search(r"2\.8\.0 +forward +1 +0 +1 +0 +0\.000", told)


# ---- the digest


def _lists(release: str, word: str, calls: int = 3) -> Lists:
    words = {"whole": {dtype: [word, "skip"] for dtype in DTYPES}}
    seen = (("whole", "forward", [], [], 3, [0, 1, 2]), ("bad", "forward", ["deep"], [], calls, [*range(calls)]), GOOD)
    recordings = {"whole": _recording(*seen, aten="whole")}
    return Lists(release, words, recordings)


def test_words_have_letters_of_their_own() -> None:
    assert len({word[0] for word in WORDS}) == len(WORDS)
    assert len(PHASES) == 2


def test_the_digest_keeps_words_and_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testlists, "DATA", tmp_path / "lists.json")
    made = Digest().with_lists(_lists("2.9.1", "pass"), TABLE).with_lists(_lists("2.8.0", "unsupported"), TABLE)
    testlists.write(made)
    read = testlists.digest()
    testlists.digest.cache_clear()
    assert read.releases == ("2.8.0", "2.9.1")
    assert read.words("whole", "2.8.0", "bool") == {"whole": "unsupported"}
    assert read.words("whole.out", "2.9.1", "float32", "backward") == {"whole": "skip"}
    assert read.words("other", "2.9.1", "float32") == {}
    assert read.needs_on("2.8.0") == {"whole": Needs(always=("bad",))}


def test_what_a_composite_calls_is_known_release_by_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testlists, "DATA", tmp_path / "lists.json")
    old = Lists("2.4.1", {}, {"whole": _recording(aten="whole")})
    made = Digest().with_lists(_lists("2.8.0", "pass", 1), TABLE).with_lists(old, TABLE).with_lists(_lists("2.9.1", "pass"), TABLE)
    testlists.write(made)
    read = testlists.digest()
    testlists.digest.cache_clear()
    assert (read.releases, read.recorded) == (("2.8.0", "2.9.1"), ["2.4.1", "2.8.0", "2.9.1"])
    known = {release: read.needs_on(release).get("whole") for release in ("2.4.1", "2.6.0", "2.8.0", "2.9.1")}
    assert known == {"2.4.1": Needs(), "2.6.0": None, "2.8.0": Needs(sometimes=("bad",)), "2.9.1": Needs(always=("bad",))}


def test_what_runs_inside_an_entry_of_the_device_is_not_needed() -> None:
    """`svd` goes through `linalg_svd`, which MPS has, and so never comes to `_linalg_svd`."""
    table = Table(("2.8.0", "2.9.1"), {"whole": "ii", "part": "im", "bad": "nn"})
    recordings = {"whole": _recording(("bad", "forward", ["part"], [], 3, [0, 1, 2]), aten="whole")}
    made = Digest().with_lists(Lists("2.8.0", {}, recordings), table).with_lists(Lists("2.9.1", {}, recordings), table)
    assert made.needs["whole"] == {"2.8.0": Needs(always=("bad",)), "2.9.1": Needs()}


@pytest.mark.parametrize(
    ("needs", "word"),
    [
        ({"whole": Needs(("bad",))}, "no (calls aten::bad)"),
        ({"whole": Needs(("good",), ("bad",))}, "composite (some arguments need aten::bad, which has no kernel)"),
        ({"whole": Needs(("good",))}, "composite (needs good)"),
        ({"whole": Needs()}, "composite (needs only what every release has)"),
        ({}, "composite (what it needs was not recorded)"),
    ],
)
def test_a_composite_stops_where_every_call_of_it_does(needs: dict[str, Needs], word: str) -> None:
    assert str(answer(TABLE, "whole", "2.8.0", needs)) == word


def test_lists_tell_a_word_for_a_phase_and_dtype() -> None:
    assert _lists("2.8.0", "pass").truth("bool") == {"whole": "pass"}
    assert _lists("2.8.0", "pass").truth("bool", "backward") == {"whole": "skip"}


def test_the_shipped_digest_has_the_releases_that_bring_lists() -> None:
    shipped = testlists.digest()
    assert set(shipped.releases) <= set(stored().releases)
    assert shipped.words("linalg_qr", "2.8.0", "float32") == {"linalg.qr": "unsupported"}
    assert shipped.words("add", "2.8.0", "float32") == {"add": "pass"}
    assert shipped.recorded == list(stored().releases)
    assert "_embedding_bag" in shipped.needs["embedding_bag"]["2.8.0"].always


@pytest.mark.parametrize(("release", "word"), [("2.3.1", "composite"), ("2.4.1", "composite"), ("2.13.0", "composite")])
def test_attention_ran_on_mps_before_its_softmax_was_a_safe_one(release: str, word: str) -> None:
    """`_safe_softmax`, and with it `isneginf`, came with 2.5: what a composite calls today says nothing of an older release."""
    found = answer(stored(), "scaled_dot_product_attention", release, testlists.digest().needs_on(release))
    assert found.word == word
    assert "isneginf" not in found.detail or release == "2.13.0"


# ---- rows of operators


def test_rows_have_the_three_sources_apart() -> None:
    where = cell("2.8.0", device="mps")
    ran = [record(where, "mps.op[linalg_qr-float32]", "raises"), record(where, "mps.op[mm-float32]")]
    observed = oprows.observed(result((where, ran)))
    assert observed == {"linalg_qr": {"2.8.0": "raises"}, "mm": {"2.8.0": "pass"}}
    rows = {row.name: row for row in oprows.rows(observed)}
    assert rows["mm"].cells["2.8.0"].observed == "pass"
    assert rows["linalg_qr"].first == "2.12.1"
    assert (rows["linalg_qr"].cells["2.8.0"].registered.word, rows["linalg_qr"].cells["2.12.1"].registered.word) == ("no", "yes")
    assert rows["linalg_qr"].cells["2.8.0"].upstream == "unsupported"


def test_rows_are_a_table_for_other_programs() -> None:
    rows = oprows.rows(table=TABLE)
    lines = list(csv.DictReader(io.StringIO(oprows.as_csv(rows))))
    assert [row.name for row in rows] == ["bad", "deep", "good", "whole"]
    assert {(line["operator"], line["release"], line["registered"]) for line in lines} >= {("bad", "2.8.0", "no"), ("bad", "2.9.1", "yes")}


# ---- real models, on real torch

MODELS = ROOT / "tests" / "models"


@pytest.mark.slow
def test_real_models_are_audited_without_a_mac(tmp_path: Path) -> None:
    project = project_with(tmp_path)

    def audit(model: str) -> tuple[int, str, dict[str, Any]]:
        done = run_conformance(project, "audit", str(MODELS / model), "--torch", ">=2.1,<=2.13.0")
        name = Path(model).stem
        return done.returncode, done.stdout + done.stderr, json.loads((project / "reports" / "audit" / f"{name}-mps.json").read_text())

    code, told, data = audit("pooled.py")
    assert code == 1, told
    assert {tuple(stops) for stops in data["stops"].values()} == {("_adaptive_avg_pool2d",)}
    assert re.search(r"forward: .*pooled\.py:\d+: pooled = self\.pool\(self\.features\(images\)\)", told)
    assert "[4, 4] to [3, 3]" in told
    code, told, data = audit("upscaled.py")
    assert code == 1, told
    assert {release for release, stops in data["stops"].items() if stops} == {"2.1.2", "2.2.2", "2.3.1", "2.4.1", "2.5.1"}
    assert all("bicubic" in name for stops in data["stops"].values() for name in stops)
    assert "larger = functional.interpolate" in told
    code, told, data = audit("recurrent.py")
    assert code == 0, told
