"""How far cases of the family lowering came, as the page tells it."""

from __future__ import annotations

import pytest
from builders import record

from conformance.ladders import ladder, rung, stopped
from conformance.report.sources import Idiom

CASE = "lowering.subject_lowers[opt-script-all]"
BLAME = {
    "file": "<env>/opt/modeling_opt.py",
    "line": 237,
    "source": "hidden_states.reshape(-1, hidden_states.size(-1))",
}


def test_a_rung_says_where_a_case_stopped_and_what_is_to_blame() -> None:
    observed = {
        "blocking": {"kind": "text", "value": "torch.aten.view at modeling_opt.py:237"},
        "artifact program.mlir": {"kind": "text", "value": "artifacts/x/program.mlir"},
    }
    found = rung(record("2.13.0", CASE, "raises", stage="lower", blame=BLAME, observations=observed, duration_s=2.5))
    assert found is not None
    assert (found.stage, found.verdict, found.seconds, found.difference) == ("lower", "raises", 2.5, None)
    assert found.blame == "modeling_opt.py:237: hidden_states.reshape(-1, hidden_states.size(-1))"
    assert found.artifacts == ("artifacts/x/program.mlir",)


@pytest.mark.parametrize(("value", "verdict"), [(1.5e-06, "pass"), ("inf", "wrong")])
def test_a_case_that_compared_has_its_difference(value: object, verdict: str) -> None:
    observed = {"max_difference": {"kind": "number", "value": value, "better": "lower"}}
    found = rung(record("2.13.0", CASE, verdict, stage="compare", observations=observed))
    assert found is not None
    assert (found.stage, found.verdict, found.difference) == ("compare", verdict, float(str(value)))


def test_a_case_that_did_not_set_out_has_no_rung() -> None:
    assert ladder([None, record("1.13.1", CASE, "unsupported"), record("2.13.0", CASE, "error", stage="install")]) == [None] * 3


def test_cases_are_counted_where_they_stopped() -> None:
    rows = [("raises", "lower"), ("timeout", "lower"), ("pass", "compare"), ("wrong", "compare"), ("raises", "capture")]
    counted = stopped([*ladder([record("2.13.0", CASE, verdict, stage=stage) for verdict, stage in rows]), None])
    assert list(counted.items()) == [("capture", 1), ("lower", 2), ("compare", 1), ("passed", 1)]


def test_a_wrong_idiom_may_state_a_verdict_for_each_value_of_a_parameter() -> None:
    assert Idiom("x", "", "", "script: wrong, export: raises").stated == [("script", "wrong"), ("export", "raises")]
    assert (Idiom("x", "", "", "wrong").stated, Idiom("x", "", "").stated) == ([("", "wrong")], [])
