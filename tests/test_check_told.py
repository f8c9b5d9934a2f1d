"""What a check says in the terminal, from records made by hand: faults, cures, ranges, drift, and what the pyproject claims."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from builders import cell, record, result
from conftest import ROOT

from conformance import claimwidth, configfile, subjectspecs
from conformance.advice import advice
from conformance.drift import ulps
from conformance.plan import CaseFile, Selection, case_files
from conformance.report.check import lines, outcomes_by_release

WRONG = {
    "verdict": "wrong",
    "observations": {"smallest_failing": {"kind": "text", "value": "batch=1, length=1"}},
    "reason": "variation 'length1': output: shape differs",
    "blame": {"file": "<project>/net.py", "line": 8, "source": "n = int(x.size(1))"},
}


def _told(*outcomes: tuple[str, dict[str, object]]) -> list[str]:
    cells = [
        (where, [record(where, "trace.subject_trace_generalizes[net]", **fields), record(where, "init.subject_copies[net]")])
        for torch, fields in outcomes
        for where in [cell(torch)]
    ]
    return lines(result(*cells).cells, "net")


def test_the_answer_names_the_line_and_the_cure() -> None:
    told = "\n".join(_told(("2.9.1", {}), ("2.10.0", WRONG), ("2.11.0", WRONG)))
    assert re.search(r"^trace\.trace_generalizes +✓ +✕ +✕$", told, re.M)
    assert "trace.trace_generalizes: wrong (silent) on >=2.10.0,<=2.11.0" in told
    assert "<project>/net.py:8: n = int(x.size(1))" in told
    assert "smallest input that shows it: batch=1, length=1" in told
    assert "cure: keep sizes as .size() gives them" in told


def test_what_a_trace_froze_is_told_though_it_passes() -> None:
    warned = {"observations": {"frozen_lines": {"kind": "text", "value": "net.py:8: if x.max() > 100:; net.py:9: n = int(x.size(1))"}}}
    told = "\n".join(_told(("2.9.1", warned), ("2.10.0", WRONG)))
    assert "passes, and worth a look\n  trace.trace_generalizes: right for every input that was tried; torch warns" in told
    assert "      net.py:8: if x.max() > 100:\n      net.py:9: n = int(x.size(1))\n" in told
    assert "(on ==2.9.1)" in told
    assert "worth a look" not in "\n".join(_told(("2.9.1", {})))


def test_a_lowering_that_stops_tells_every_blocking_op_and_what_was_kept() -> None:
    observed = {
        "blocking": {"kind": "text", "value": "torch.aten.median.dim at net.py:26: a; torch.aten.view at net.py:11: b"},
        "artifact program.mlir": {"kind": "text", "value": "artifacts/x/program.mlir"},
    }
    told = "\n".join(_told(("2.13.0", {"verdict": "raises", "reason": "no op", "stage": "convert", "observations": observed})))
    assert "blocks: torch.aten.median.dim at net.py:26: a\n" in told
    assert "blocks: torch.aten.view at net.py:11: b\n" in told
    assert f"kept: results/{cell('2.13.0')}/artifacts/x/program.mlir beside site/, with reproduce.txt" in told


def test_a_line_of_our_own_is_not_what_a_user_can_mend() -> None:
    told = _told(("2.9.1", {**WRONG, "blame": {"file": "<cases>/trace/test_x.py", "line": 3, "source": "assert x"}}))
    assert "<cases>" not in "\n".join(told)


def test_the_answer_gives_the_range_that_may_be_claimed() -> None:
    told = _told(("2.9.1", {}), ("2.10.0", WRONG))
    ranges = [re.split(" {2,}", line.strip()) for line in told[told.index("requires on cpu") + 1 :]]
    assert ranges == [["eager", "torch >=2.9"], ["torch.jit.trace", "torch ==2.9.*"], ["every check passes", "torch ==2.9.*"]]


def test_nothing_may_be_claimed_of_a_use_that_no_release_has() -> None:
    case = "trace.subject_onnx_generalizes[net-dynamo]"
    cells = [(cell("2.9.1"), [record("2.9.1", case, "unsupported")]), (cell("2.10.0"), [record("2.10.0", case)])]
    assert re.search(r"^  ONNX +torch ==2\.10\.\*$", "\n".join(lines(result(*cells).cells, "net")), re.M)
    assert re.search(r"^  ONNX +nothing was measured$", "\n".join(lines(result(cells[0]).cells, "net")), re.M)


def test_faults_that_differ_are_told_apart() -> None:
    loud = {**WRONG, "verdict": "raises", "exception": {"type": "RuntimeError", "message": "m"}}
    told = [line for line in _told(("2.9.1", loud), ("2.10.0", WRONG)) if "on ==" in line]
    assert [("silent" in line, "loud" in line) for line in told] == [(False, True), (True, False)]


ANSWER = {"kind": "tensor", "dtype": "float32", "shape": [2], "digest": "a", "values": [1.0, -2.0]}


def test_the_drift_of_the_answer_is_told_in_ulp() -> None:
    moved = {**ANSWER, "digest": "b", "values": [1.0000001192092896, -2.0]}
    outcomes = (("2.8.0", ANSWER), ("2.9.1", ANSWER), ("2.10.0", moved), ("2.11.0", ANSWER))
    cells = [
        (where, [record(where, "mps.subject_answer_repeats[net]", observations={"answer": seen})])
        for torch, seen in outcomes
        for where in [cell(torch)]
    ]
    told = lines(result(*cells).cells, "net")
    start = told.index("between releases")
    assert [line.strip() for line in told[start + 1 : start + 5]] == [
        "forward, on equal weights",
        "2.8.0 to 2.9.1: equal bits",
        "2.10.0: other bits, up to 1 ULP from 2.9.1",
        "2.11.0: other bits, up to 1 ULP from 2.10.0, back to the bits of 2.8.0",
    ]


def test_initial_weights_have_classes_and_no_distance() -> None:
    outcomes = {"2.8.0": "a", "2.9.1": "b"}
    case = "init.subject_init_repeats[net]"
    cells = [(cell(torch), [record(torch, case, observations={"bits": {**ANSWER, "digest": bits}})]) for torch, bits in outcomes.items()]
    assert "    2.9.1: other bits than 2.8.0" in lines(result(*cells).cells, "net")


@pytest.mark.parametrize(
    ("dtype", "first", "second", "apart"),
    [
        ("float32", [0.0, 1.0], [-0.0, 1.0], 0),
        ("float32", [-1.401298464324817e-45], [1.401298464324817e-45], 2),
        ("bfloat16", [1.0], [1.0078125], 1),
        ("float16", [1.0, "nan"], [1.0009765625, "nan"], 1),
        ("float32", [1.0], ["nan"], None),
        ("float32", ["inf"], [1.0], None),
        ("int64", [1], [2], None),
    ],
)
def test_a_distance_in_ulp(dtype: str, first: list[object], second: list[object], apart: int | None) -> None:
    one, two = ({"dtype": dtype, "shape": [len(values)], "values": values} for values in (first, second))
    assert ulps(one, two) == apart


CLAIMING = '[project]\nname = "pkg"\nrequires-python = ">=3.11"\ndependencies = ["numpy", "torch>=2.9.1"]\n'


def _claims(tmp_path: Path, *outcomes: tuple[str, str], pyproject: str = CLAIMING) -> str:
    (tmp_path / "pyproject.toml").write_text(pyproject, encoding="utf-8")
    cells = [(where, [record(where, "init.subject_copies[net]", verdict)]) for torch, verdict in outcomes for where in [cell(torch)]]
    found = outcomes_by_release(result(*cells).cells, {"net"})
    return "\n".join(claimwidth.lines(claimwidth.claimed(tmp_path), found, dict.fromkeys(found, "3.10")))


def test_a_claim_that_is_too_wide_is_told_with_its_loudness(tmp_path: Path) -> None:
    told = _claims(tmp_path, ("2.9.1", "wrong"), ("2.10.0", "raises"), ("2.11.0", "pass"))
    assert "torch>=2.9.1 (dependencies): too wide, 2.9.1 fails in silence (init.copies)" in told
    assert "torch>=2.9.1 (dependencies): too wide, 2.10.0 fails loudly (init.copies)" in told
    assert "what was measured bears out torch>=2.11" in told


def test_a_claim_that_is_too_narrow_is_told(tmp_path: Path) -> None:
    told = _claims(tmp_path, ("2.8.0", "pass"), ("2.9.1", "pass"))
    assert "torch>=2.9.1 (dependencies): too narrow, 2.8.0 would do as well" in told
    assert "requires-python >=3.11: leaves out Python 3.10, which torch 2.8.0, 2.9.1 was planned with" in told


def test_a_claim_that_holds_and_one_that_is_not_made(tmp_path: Path) -> None:
    assert "holds on every measured release" in _claims(tmp_path, ("2.9.1", "pass"))
    assert "no release of it was measured" in _claims(tmp_path, ("2.8.0", "raises"))
    assert "nothing of torch" in _claims(tmp_path, ("2.8.0", "pass"), pyproject="[project]\nname = 'pkg'\n")


def test_claims_of_other_files_and_tools_are_told_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[options]\ninstall_requires =\n    torch<2.9\n", encoding="utf-8")
    told = _claims(tmp_path, ("2.8.0", "raises"), pyproject='[tool.poetry.dependencies]\ntorch = "^2.1"\n')
    assert "torch<2.9 (setup.cfg [options] install_requires): too wide, 2.8.0 fails loudly" in told
    assert "torch<3,>=2.1 (pyproject.toml [tool.poetry.dependencies] torch): too wide, 2.8.0 fails loudly" in told


def test_what_was_not_measured_claims_nothing(tmp_path: Path) -> None:
    assert "no release of it was measured" in _claims(tmp_path, ("2.9.1", "error"))


def test_a_model_that_cannot_be_built_is_told_once() -> None:
    broken = {"verdict": "raises", "stage": "build", "reason": "RuntimeError: no kernel"}
    told = "\n".join(
        lines(
            result(
                *[
                    (cell(torch), [record(torch, f"init.subject_{name}[net]", **broken) for name in ("copies", "casts")])
                    for torch in ("2.9.1", "2.10.0")
                ]
            ).cells,
            "net",
        )
    )
    assert told.count("RuntimeError: no kernel") == 1
    assert "every check: raises (loud) on >=2.9.1,<=2.10.0" in told


def test_models_are_told_apart() -> None:
    where = cell("2.9.1")
    records = [
        record(where, f"init.subject_copies[{alias}]", verdict, subject=alias) for alias, verdict in (("one", "pass"), ("two", "wrong"))
    ]
    cells = result((where, records)).cells
    assert "✓ pass" in lines(cells, "one")
    assert "✕ wrong" in lines(cells, "two")


@pytest.mark.parametrize("fields", [{"verdict": "crash"}, {"verdict": "timeout"}, {"verdict": "raises", "stage": "build"}])
def test_nothing_is_advised_where_the_check_did_not_come_to_its_question(fields: dict[str, str]) -> None:
    assert advice(record("2.9.1", "trace.subject_trace_generalizes[net]", **fields)) is None


@pytest.mark.parametrize(
    ("case", "reason", "cure"),
    [
        ("compile.subject_compiles_whole[net]", "the graph breaks: print at net.py:3", "move what breaks the graph"),
        ("compile.subject_compiles_whole[net]", "call 'a': its result: 4 of 4 elements differ", "ask nothing about"),
        ("trace.subject_export_generalizes[net-strict]", "AssertionError: Encountered unrecognized type", "register another class"),
        ("trace.subject_export_generalizes[net-strict]", "variation 'a': output: 1 of 2 elements differ", "depend on the inputs alone"),
        ("init.subject_round_trips[net-copy]", 'Unexpected key(s) in state_dict: "pos"', "persistent=False"),
        ("init.subject_init_is_the_cpus[net]", "other numbers under the same seed: head.weight", "no numpy"),
    ],
)
def test_the_cure_is_that_of_the_reason(case: str, reason: str, cure: str) -> None:
    assert cure in str(advice(record("2.9.1", case, "wrong", reason=reason)))


@pytest.mark.parametrize("verdict", ["pass", "unsupported", "error", "missing"])
def test_nothing_is_advised_where_nothing_is_wrong_with_the_model(verdict: str) -> None:
    assert advice(record("2.9.1", "trace.subject_trace_generalizes[net]", verdict)) is None


def test_every_cure_is_for_a_check_and_every_check_has_one(tmp_path: Path) -> None:
    from conformance.advice import _CURES

    (tmp_path / "net.py").write_text("build = None", encoding="utf-8")
    config = configfile.load(tmp_path)
    files = case_files(config, Selection(subjects=subjectspecs.specs(["net.py"], config), families=config.families))
    checks = {name for file in files for name in _checks(file)}
    assert [prefix for prefix in _CURES if not any(name.startswith(prefix) for name in checks)] == []
    assert [name for name in checks if not any(name.startswith(prefix) for prefix in _CURES)] == []


def _checks(file: CaseFile) -> list[str]:
    tree = ast.parse(file.path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    marked = [one for one in functions if any(ast.unparse(each) == "subjects()" for each in one.decorator_list)]
    return [f"{file.family}.{function.name.removeprefix('test_')}" for function in marked]


def test_advice_names_a_guard_that_exists() -> None:
    from conformance import advice as module

    exported = (ROOT / "conformance" / "guards" / "__init__.py").read_text(encoding="utf-8")
    for each in module._CURES.values():
        assert not each.guard or f'"{each.guard}"' in exported
        assert not each.page or (ROOT / each.page).is_file()


def test_one_death_of_every_process_is_told_once() -> None:
    where = cell("2.13.0")
    died = {"verdict": "crash", "stage": "build", "subject": "net"}
    records = [
        record(where, f"init.subject_{name}[net]", reason=f"output: {size} MB printed", **died) for name, size in (("a", 88), ("b", 91))
    ]
    told = lines(result((where, records)).cells, "net")
    assert [line.strip() for line in told if "crash (loud)" in line] == ["every check: crash (loud) on ==2.13.0"]
