"""`show` and `diff`: the answers in the terminal, also to hostile results and wrong questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from conformance.answers import case, cell, guard, release
from conformance.answers import markdown as markdowns
from conformance.answers.sets import answer as told_sets
from conformance.cli import main
from conformance.columns import groups
from conformance.compare import said
from conformance.errors import NothingSelectedError
from conformance.expectations import parse
from conformance.guardneeds import Way
from conformance.setdifferences import compare_columns, compare_sets
from tests.builders import cell as made_cell
from tests.builders import grid, record, result, write_cell
from tests.conftest import project_with
from tests.test_expectations import entry

GRID = {
    "init.x[a]": {"2.1.2": "pass", "2.9.1": "wrong", "2.10.0": "wrong"},
    "init.x[b]": {"2.1.2": "pass", "2.9.1": "pass", "2.10.0": "pass"},
    "trace.y": {"2.1.2": "unsupported", "2.9.1": "pass", "2.10.0": "raises"},
}
HOSTILE = "<script>alert(1)</script>\x1b[31m|`x`\u202e\n# @team"


def of_case(*names: str, rows: Any = None) -> str:
    return "\n".join(case.answer(groups(grid(rows or GRID)), [], names))


def test_a_case_tells_where_it_passes_and_where_it_broke() -> None:
    assert of_case("init.x[a]").splitlines() == [
        "init.x[a]",
        "  cpu · linux_x86_64  passes ==2.1.* (tested 2.1.2 to 2.10.0)",
        "    2.1.2              pass",
        "    2.9.1 to 2.10.0    wrong       wrong here",
        "    last good 2.1.2, first bad 2.9.1",
        "    run it again: conformance run --only torch2.9.1-py3.11-cpu-linux_x86_64 --case 'init.x[a]'",
        "not measured on cuda, mps, xla, xpu, meta",
    ]


def test_releases_between_that_were_not_measured_are_not_told_as_a_stretch() -> None:
    others = {f"2.{minor}.0": "pass" for minor in range(10)}
    found = grid({"init.all": others, "init.x": {"2.0.0": "wrong", "2.4.0": "wrong", "2.9.0": "wrong"}})
    lines = list(case.answer(groups(found), [], ["init.x"]))
    assert lines[1] == "  cpu · linux_x86_64  passes nowhere (tested 2.0.0, 2.4.0, 2.9.0 alone)"
    assert [line.split()[0] for line in lines if " wrong " in line] == ["2.0.0", "2.4.0", "2.9.0"]
    assert said([Version("2.0.0"), Version("2.1.0"), Version("2.9.0")], map(Version, others)) == "2.0.0 to 2.1.0, 2.9.0"


def test_many_cases_are_told_by_their_intervals() -> None:
    rows = {f"init.x[{number}]": {"2.1.2": "pass", "2.10.0": "wrong"} for number in range(20)}
    lines = of_case(*rows, rows=rows).splitlines()
    assert lines[:2] == ["init.x[0]", "  cpu · linux_x86_64  passes ==2.1.* (tested 2.1.2 to 2.10.0)"]
    assert len(lines) == 41


def test_a_case_tells_what_it_observed_and_what_was_expected() -> None:
    seen = {
        release: {
            "graphs": {"kind": "number", "value": graphs, "better": "lower"},
            "bits": {"kind": "tensor", "digest": letter, "dtype": "float32", "shape": [1], "stride": [1], "values": [0.0]},
            "same": {"kind": "text", "value": "yes"},
            "odd": 7,
        }
        for release, graphs, letter in (("2.9.1", 1, "a"), ("2.10.0", 2, "b"), ("2.11.0", 2, "b"))
    }
    cells = [(made_cell(version), [record(version, "init.x", "wrong", observations=values)]) for version, values in seen.items()]
    lines = list(case.answer(groups(result(*cells)), parse(entry(case='"init.x"', torch='">=2.10"'), "e.toml"), ["init.x"]))
    assert "    graphs: 1 (2.9.1), 2 (2.10.0 to 2.11.0)" in lines
    assert "    bits: bits A 2.9.1, B 2.10.0 to 2.11.0" in lines
    assert "    same: yes" in lines
    assert [line.split()[0] for line in lines if "expected: bits moved" in line] == ["expected:"]
    assert not [line for line in lines if "odd" in line]


def test_a_cell_tells_its_counts_and_what_did_not_pass_by_cause() -> None:
    (group,) = groups(grid(GRID))
    lines = list(cell.answer(group.columns[-1], parse(entry(case='"init.*"'), "e.toml")))
    assert lines[0].startswith("torch2.10.0-py3.11-cpu-linux_x86_64: torch 2.10.0+cpu, Python 3.11.7")
    assert lines[1:] == [
        "  3 cases: 1 wrong, 1 raises, 1 pass",
        "  raises: raises here",
        "      trace.y",
        "  wrong: wrong here (expected: bits moved)",
        "      init.x[a]",
    ]


def test_each_deviation_in_a_cell_has_the_expectation_that_covers_it() -> None:
    (group,) = groups(grid({f"init.x[{name}]": {"2.9.1": "wrong"} for name in ("a", "b", "c")}))
    entries = parse(entry(case='"init.x[a]"', reason='"of a"') + entry(case='"init.x[b]"', reason='"of b"'), "e.toml")
    lines = list(cell.answer(group.columns[0], entries))
    assert [tuple(lines[at : at + 2]) for at in (2, 4, 6)] == [
        ("  wrong: wrong here", "      init.x[c]"),
        ("  wrong: wrong here (expected: of a)", "      init.x[a]"),
        ("  wrong: wrong here (expected: of b)", "      init.x[b]"),
    ]


def test_what_is_not_there_comes_last_in_a_cell() -> None:
    (group,) = groups(grid({"init.a": {"2.9.1": "unsupported"}, "init.b": {"2.9.1": "wrong"}, "init.c": {"2.9.1": "crash"}}))
    lines = list(cell.answer(group.columns[0], parse(entry(case='"init.b"'), "e.toml")))
    assert [line.split(":")[0].strip() for line in lines[2::2]] == ["crash", "wrong", "unsupported"]


def test_a_cell_whose_controls_are_off_says_so() -> None:
    (group,) = groups(grid(GRID, controls={"ok": False, "off": ["control.must_fail"]}))
    assert "controls off: control.must_fail" in "\n".join(cell.answer(group.columns[0], []))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("2.9", ["torch 2.9.1 on cpu · linux_x86_64, against 2.1.2"]),
        ("2.9.1", ["torch 2.9.1 on cpu · linux_x86_64, against 2.1.2"]),
        ("2.1", ["torch 2.1.2 on cpu · linux_x86_64 is the oldest release measured there: nothing to compare it with"]),
        ("2.10.0", ["torch 2.10.0 on cpu · linux_x86_64, against 2.9.1"]),
    ],
)
def test_a_release_is_named_by_its_numbers(asked: str, told: list[str]) -> None:
    lines = release.answer(groups(grid(GRID)), asked)
    assert [line for line in lines if not line.startswith(" ")] == told


@pytest.mark.parametrize("asked", ["2.8", "2.11", "nine", "", "2.9.2"])
def test_a_release_that_was_not_measured_names_those_that_were(asked: str) -> None:
    with pytest.raises(NothingSelectedError, match=r"measured: 2\.1\.2, 2\.9\.1, 2\.10\.0"):
        release.answer(groups(grid(GRID)), asked)


def test_a_release_tells_worse_and_better_apart() -> None:
    lines = release.answer(groups(grid(GRID)), "2.9")
    assert lines[1:] == [
        "  1 case got worse, 1 got better (3 cases compared)",
        "  worse:",
        "    pass -> wrong: wrong here",
        "        init.x[a]",
        "  better:",
        "    unsupported -> pass: unsupported here",
        "        trace.y",
    ]


@pytest.mark.parametrize(
    ("torch", "told"),
    [("", ["    conformance expect --tighten --case 'init.x[a]'"]), ("<2.10", [])],
)
def test_what_got_better_asks_to_move_the_expectation_that_still_speaks_of_it(torch: str, told: list[str]) -> None:
    rows = {"init.x[a]": {"2.9.1": "wrong", "2.10.0": "pass"}}
    entries = parse(entry(case='"init.x[a]"', torch=f'"{torch}"'), "e.toml")
    lines = release.answer(groups(grid(rows)), "2.10", entries)
    assert [line for line in lines if "--tighten" in line] == told


def test_a_number_that_got_better_asks_to_move_its_bound() -> None:
    seen = {version: {"breaks": {"kind": "number", "value": value, "better": "lower"}} for version, value in (("2.9.1", 4), ("2.10.0", 2))}
    cells = [(made_cell(version), [record(version, "init.x", "wrong", observations=values)]) for version, values in seen.items()]
    entries = parse(entry(observation='{name = "breaks", bound = 4, better = "lower"}'), "e.toml")
    lines = release.answer(groups(result(*cells)), "2.10", entries)
    assert lines[-2:] == ["  expectations to move:", "    conformance expect --tighten --case init.x"]


WAYS = [
    Way("norm", "F.norm", ("init.norm_native*",)),
    Way("norm", "old.norm", ("init.never_run",)),
    Way("cast", "x.to", ("init.never_run",)),
]


def of_guard(letters: str) -> list[str]:
    names = {"p": "pass", "w": "wrong", "u": "unsupported", "e": "error"}
    verdicts = {version: names[letter] for version, letter in zip(("2.1.2", "2.9.1", "2.10.0"), letters)}
    rows = {"init.norm_native[a]": dict.fromkeys(verdicts, "pass"), "init.norm_native[b]": verdicts, "init.norm": verdicts}
    return guard.answer(groups(grid(rows)), WAYS, {"norm": "Norms.", "cast": "Casts."}, {"norm": ["init.norm", "init.norm_native"]}, "norm")


@pytest.mark.parametrize(
    ("letters", "told"),
    [
        ("uwp", "needed on 2.1 (unsupported), 2.9 (wrong); droppable once the floor is 2.10"),
        ("wwp", "needed on 2.1 to 2.9 (wrong); droppable once the floor is 2.10"),
        ("ppp", "not needed on any release measured (2.1 to 2.10)"),
        ("pww", "needed on 2.9 to 2.10 (wrong); not droppable yet"),
        ("wpe", "needed on 2.1 (wrong); droppable once the floor is 2.9"),
        ("eee", "not measured"),
    ],
)
def test_a_guard_is_needed_where_its_cases_fail_without_it(letters: str, told: str) -> None:
    lines = of_guard(letters)
    assert lines[:2] == ["norm: Norms.", f"  without it, by F.norm, on cpu · linux_x86_64: {told}"]
    assert [line.split(": ")[1].split()[0] for line in lines[2:]] == ["init.norm"]


def test_a_guard_without_cases_says_so() -> None:
    assert guard.answer(groups(grid(GRID)), WAYS, {"cast": "Casts."}, {}, "cast") == [
        "cast: Casts.",
        "  without it: its cases were not measured",
        "  with it: no case of its own",
    ]
    with pytest.raises(NothingSelectedError, match="close: norm"):
        guard.answer([], WAYS, {"norm": ""}, {}, "norms")


def test_guards_that_may_be_dropped_from_a_floor_on() -> None:
    columns = groups(grid({"init.norm_native": {"2.1.2": "wrong", "2.9.1": "pass", "2.10.0": "pass"}}))
    assert guard.droppable(columns, WAYS, "2.9") == [
        "may be dropped where the floor is 2.9:",
        "  norm, by F.norm",
        "not measured where the floor is 2.9:",
        "  cast, by x.to",
        "  norm, by old.norm",
    ]
    assert "  norm, by F.norm (cpu · linux_x86_64: 2.1.2)" in guard.droppable(columns, WAYS, "2.1")
    assert guard.droppable(columns, WAYS, "2.11")[0] == "not measured where the floor is 2.11:"
    with pytest.raises(NothingSelectedError, match="is no release"):
        guard.droppable(columns, WAYS, "new")


def test_a_word_of_an_id_or_a_title_finds_the_cases_that_speak_of_it() -> None:
    rows = [record("2.9.1", "init.x"), record("2.9.1", "rope.growth")]
    columns = groups(result((made_cell("2.9.1"), rows), titles={"init.x": "Every Embedding is written."}))
    assert case.speaking_of(columns, "embedding") == ["init.x"]
    assert case.speaking_of(columns, "GROW") == ["rope.growth"]
    assert (case.speaking_of(columns, " "), case.speaking_of(columns, "none")) == ([], [])


def test_hostile_results_stay_lines() -> None:
    where = made_cell("2.4.1")
    row = record(
        where,
        f"init.x[{HOSTILE}]",
        "wrong",
        reason=HOSTILE * 50,
        blame={"file": HOSTILE, "line": HOSTILE, "source": HOSTILE},
        observations={HOSTILE: {"kind": "text", "value": HOSTILE}},
    )
    other = made_cell("2.9.1")
    found = groups(result((where, [record(where, row["case"])]), (other, [{**row, "cell": str(other)}]), status=HOSTILE, reason=HOSTILE))
    comparison = compare_columns(*found[0].columns)
    lines = [
        *case.answer(found, [], [row["case"]]),
        *cell.answer(found[0].columns[1], []),
        *release.answer(found, "2.9"),
        *told_sets(comparison),
    ]
    printed = [*lines, *markdowns.answer(comparison)]
    assert all(character.isprintable() or character in "\n\u2060" for line in printed for character in line), printed
    assert "<script" not in "\n".join(markdowns.answer(comparison))
    assert json.loads(json.dumps(comparison.as_json()))["regressed"] is True


def test_two_sets_are_compared_cell_by_cell() -> None:
    old, new = grid({"init.x": {"2.1.2": "pass", "2.9.1": "pass"}}), grid({"init.x": {"2.9.1": "wrong", "2.10.0": "pass"}})
    found = compare_sets(old, new)
    assert [(pair.old, pair.difference.regressed) for pair in found.pairs] == [(str(made_cell("2.9.1")), True)]
    assert (found.only_old, found.only_new, found.exit_code) == ([str(made_cell("2.1.2"))], [str(made_cell("2.10.0"))], 1)


def test_two_sets_without_a_common_cell_cannot_be_compared() -> None:
    old, new = grid({"init.x": {"2.1.2": "pass", "2.9.1": "pass"}}), grid({"init.x": {"2.10.0": "pass"}})
    with pytest.raises(NothingSelectedError, match="no cell in common"):
        compare_sets(old, new)
    one = grid({"init.x": {"2.1.2": "pass"}})
    assert [pair.new for pair in compare_sets(one, new).pairs] == [str(made_cell("2.10.0"))]


def on_disk(folder: Path, verdicts: dict[str, str]) -> Path:
    for version, verdict in verdicts.items():
        write_cell(folder, made_cell(version), [record(version, "init.x", verdict), record(version, "init.y")])
    return folder


def run(project: Path, *arguments: str) -> int:
    return main(["--project", str(project), *arguments])


def test_diff_of_folders_and_of_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = project_with(tmp_path)
    old = on_disk(tmp_path / "old", {"2.9.1": "pass"})
    on_disk(tmp_path / "reports", {"2.9.1": "wrong", "2.10.0": "pass"})
    assert run(project, "diff", str(old), str(tmp_path / "reports"), "--format", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["regressed"], told["only_new"]) == (1, True, [str(made_cell("2.10.0"))])
    assert [cause["cases"] for cause in told["pairs"][0]["worse"]] == [["init.x"]]
    assert run(project, "diff", "torch2.9.1*", "torch2.10.0*", "--format", "markdown") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("## Nothing got worse\n\n### `torch2.9.1-py3.11-cpu-linux_x86_64` to `torch2.10.0-")
    assert "| wrong → pass | `init.x` |" in printed
    assert run(project, "diff", str(old), str(old)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing got worse"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("diff", "torch2.9.1*", "torch9*"), 2, "names 0 cells"),
        (("diff", "torch2.*", "torch2.9.1*"), 2, "names 2 cells"),
        (("diff", "reports", "torch2.9.1*"), 2, "is a folder, and the other is not"),
        (("show", "nothing"), 3, "no case or cell matches 'nothing'"),
        (("show", "--guard", "rms_nrm"), 3, "close: rms_norm"),
        (("show", "--floor", "new"), 3, "--floor 'new' is no release"),
        (("show", "--release", "3"), 3, "torch 3 was not measured; measured: 2.9.1, 2.10.0"),
    ],
)
def test_wrong_questions_are_told_what_there_is(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    project = project_with(tmp_path)
    on_disk(tmp_path / "reports", {"2.9.1": "wrong", "2.10.0": "pass"})
    monkeypatch.chdir(tmp_path)
    assert run(project, *arguments) == code
    assert told in capsys.readouterr().err


def test_show_answers_each_kind_of_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = project_with(tmp_path)
    on_disk(tmp_path / "reports", {"2.9.1": "wrong", "2.10.0": "pass"})
    for question, told in (
        (["init.x"], "last bad 2.9.1, first good 2.10.0"),
        (["torch2.9.1*"], "2 cases: 1 wrong, 1 pass"),
        (["--release", "2.10"], "1 got better"),
        (["INIT.X"], "last bad 2.9.1, first good 2.10.0"),
        (["--floor", "2.9"], "not measured where the floor is 2.9"),
        (["--guard", "rms_norm"], "without it: its cases were not measured"),
    ):
        assert run(project, "show", *question) == 0
        assert told in capsys.readouterr().out
