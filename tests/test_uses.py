"""What decides the exit code of a check: the uses that a model is for, and what is silent in any of them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from builders import cell, record, result

from conformance import configfile, subjectspecs
from conformance.errors import ConfigError
from conformance.gate import judge
from conformance.uses import EAGER, USES, Judged, checked, judged, lines, use_of

FX, EXPORT, COPIES = "trace.subject_fx_generalizes[net]", "trace.subject_export_generalizes[net-strict]", "init.subject_copies[net]"


def _judged(*uses: str, **verdicts: str) -> Judged:
    cases = {"fx": FX, "export": EXPORT, "copies": COPIES}
    records = [record("2.13.0", cases[name], verdict, subject="net") for name, verdict in verdicts.items()]
    return judged(judge(result((cell("2.13.0"), records)), [], date(2026, 12, 1)), {"net": uses})


@pytest.mark.parametrize(
    ("uses", "verdicts", "code"),
    [
        ([EAGER], {"copies": "pass", "fx": "raises", "export": "crash"}, 0),
        ([EAGER, "fx"], {"copies": "pass", "fx": "raises"}, 1),
        ([EAGER, "export"], {"copies": "pass", "fx": "raises"}, 0),
        ([EAGER], {"copies": "raises", "fx": "pass"}, 1),
        ([EAGER], {"copies": "pass", "fx": "wrong"}, 1),
        ([EAGER], {"copies": "pass", "export": "error"}, 1),
        (["fx"], {"copies": "raises", "fx": "pass"}, 0),
        ([EAGER], {"copies": "pass", "fx": "missing"}, 5),
    ],
)
def test_what_counts_decides(uses: list[str], verdicts: dict[str, str], code: int) -> None:
    assert _judged(*uses, **verdicts).judgement.exit_code == code


def test_the_way_to_count_and_to_accept_is_told() -> None:
    told = "\n".join(lines(_judged(EAGER, copies="raises", fx="raises", export="raises"), 1, "reports/check/net"))
    assert "exit code 1: something fails that counts" in told
    assert "not counted: 2 loud faults in what the model is not said to be for: torch.export, torch.fx (--use eager,export,fx" in told
    assert f"conformance --reports reports/check/net expect --update --file known.toml --case '{COPIES}'" in told


def test_where_all_is_well_nothing_more_is_told() -> None:
    assert lines(_judged(EAGER, copies="pass"), 0, "reports")[1:] == ["exit code 0: nothing fails that counts"]


@pytest.mark.parametrize(
    ("case", "use"),
    [
        ("rope.subject_growth_compiles[net]", "compile"),
        ("rope.subject_growth_keeps[net]", EAGER),
        ("rope.subject_positions_keep_precision[bfloat16-net]", "bfloat16"),
        ("rope.subject_casts_after_use[net-bfloat16]", "bfloat16"),
        ("rope.subject_forgets_its_inputs[net]", EAGER),
        ("init.subject_casts[bfloat16-net]", "bfloat16"),
        ("init.subject_copies[net]", EAGER),
        ("trace.test_subject", EAGER),
        (FX, "fx"),
    ],
)
def test_every_check_has_a_use(case: str, use: str) -> None:
    assert use_of(case) == use


def test_uses_are_configured_or_given(tmp_path: Path) -> None:
    text = '[tool.conformance.subjects]\nmine = { build = "pkg:build", uses = ["eager", "fx"] }\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    config = configfile.load(tmp_path)
    assert subjectspecs.specs(["mine"], config)[0].uses == (EAGER, "fx")
    assert subjectspecs.specs(["mine"], config, uses=["all"])[0].uses == tuple(USES)
    assert subjectspecs.specs(["pkg:other"], config)[0].uses == (EAGER,)


def test_a_word_that_is_no_use_is_told() -> None:
    with pytest.raises(ConfigError, match="'exprt' is no use; perhaps 'export'"):
        checked(["exprt"], "--use")
