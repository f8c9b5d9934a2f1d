"""`conformance check`: subjects by reference, what it prints, and on real torch that it names the silent fault and its line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ENVIRONMENTS, ROOT, project_with, run_conformance

from conformance import configfile, subjectspecs
from conformance.errors import ConfigError
from conformance.plan import Selection, case_files

MODELS = ROOT / "tests" / "models"


def _spec(project: Path, text: str, **options: object) -> subjectspecs.SubjectSpec:
    return subjectspecs.spec(text, configfile.load(project), **options)  # type: ignore[arg-type]


def test_a_file_is_a_subject_without_a_project(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("", encoding="utf-8")
    found = _spec(tmp_path, "net.py:make")
    assert (found.alias, found.reference, found.requirements) == ("make", f"{tmp_path}/net.py:make", ())
    assert found.roots == (tmp_path,)
    assert _spec(tmp_path, "net.py:build").alias == "net"
    assert _spec(tmp_path, "net.py", alias="My GPT").alias == "my_gpt"


def test_a_module_brings_its_project(tmp_path: Path) -> None:
    assert _spec(tmp_path, "pkg.models:build").requirements == ()
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = []\n[project]\nname = "Pkg"\n', encoding="utf-8")
    (tmp_path / "src").mkdir()
    found = _spec(tmp_path, "pkg.models:build", requirements=["einops>=0.7"])
    assert found.requirements == (f"Pkg @ {tmp_path.as_uri()}", "einops>=0.7")
    assert found.roots == (tmp_path / "src", tmp_path)


def test_a_configured_subject_has_an_alias_and_packages(tmp_path: Path) -> None:
    text = '[tool.conformance.subjects]\nmine = { build = "pkg:build", requirements = ["einops"] }\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    found = _spec(tmp_path, "mine")
    assert (found.alias, found.reference, found.requirements) == ("mine", "pkg:build", ("einops",))


def test_a_library_is_named_by_its_model(tmp_path: Path) -> None:
    found = _spec(tmp_path, "transformers:LlamaModel")
    assert (found.alias, found.reference) == ("llamamodel", "transformers:LlamaModel")
    assert found.requirements[0].startswith("transformers[torch]")


def test_a_module_that_no_environment_could_have_is_told_before_one_is_made(tmp_path: Path) -> None:
    for command in ("check", "audit", "run --subject"):
        done = run_conformance(tmp_path, *command.split(), "nosuch:build")
        assert (done.returncode, "there is no module 'nosuch'" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / ".conformance").exists()
    for found in ("nosuch:build", "torch.nn:Identity"):
        subjectspecs.check_found(_spec(tmp_path, found, requirements=["einops"] if found.startswith("nosuch") else []))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("missing.py:build", {}, "there is no file"),
        ("not a name", {}, "names no subject"),
        ("pkg:", {}, "names no subject"),
        ("pkg:build", {"requirements": ["torch>=2"]}, "torch is what varies"),
        ("pkg:build", {"requirements": ["?"]}, "is no requirement"),
    ],
)
def test_what_can_be_no_subject_is_told(tmp_path: Path, text: str, options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _spec(tmp_path, text, **options)


@pytest.mark.parametrize(
    ("source", "is_known"),
    [
        ("def build(): ...", True),
        ("if True:\n    from zoo import lion as build", True),
        ("try:\n    import build\nexcept ImportError:\n    build = None", True),
        ("with open('x') as build: ...", True),
        ("for (first, build) in []: ...", True),
        ("from zoo import *", True),
        ("def __getattr__(name): ...", True),
        ("globals()['build'] = 1", True),
        ("def broken(:", True),
        ("def make(): build = 1", False),
        ("class Net:\n    build = 1", False),
    ],
)
@pytest.mark.parametrize("reference", ["net.py", "net:build", "net.py:build.deeper"])
def test_a_name_that_a_source_has_not_is_told_before_anything_is_made(tmp_path: Path, source: str, is_known: bool, reference: str) -> None:
    (tmp_path / "net.py").write_text(source, encoding="utf-8")
    config = configfile.load(tmp_path)
    if is_known:
        assert subjectspecs.specs([reference], config)
    else:
        with pytest.raises(ConfigError, match=r"net\.py has no 'build'; it has (make|Net)"):
            subjectspecs.specs([reference], config)


def test_records_are_valid_for_the_code_they_were_made_with(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("a = 1", encoding="utf-8")
    found = _spec(tmp_path, "net.py")
    before = found.code()
    for apart in (".venv", "another_project"):
        (tmp_path / apart).mkdir()
        (tmp_path / apart / "other.py").write_text("", encoding="utf-8")
    assert found.code() == before
    (tmp_path / "net.py").write_text("a = 2", encoding="utf-8")
    assert found.code() != before


def test_only_files_with_checks_are_planned(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("", encoding="utf-8")
    config = configfile.load(tmp_path)
    every = case_files(config, Selection())
    checks = case_files(config, Selection(subjects=(_spec(tmp_path, "net.py"),)))
    assert 4 <= len(checks) < len(every)
    assert {file.family for file in checks} >= {"init", "trace", "rope", "mps"}


ANNOUNCED = '[project]\nname = "pkg"\n[project.entry-points."torch_conformance.subjects"]\ntiny = "pkg.models:tiny"\n'


def test_an_entry_point_of_the_project_names_a_subject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(ANNOUNCED, encoding="utf-8")
    found = _spec(tmp_path, "tiny")
    assert (found.alias, found.reference, found.own) == ("tiny", "pkg.models:tiny", True)


def test_an_installed_package_announces_its_subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site" / "zoo-1.2.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo\nVersion: 1.2\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[torch_conformance.subjects]\nlion = zoo.cats:lion\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = _spec(tmp_path, "lion", requirements=["einops"])
    assert (found.alias, found.reference, found.requirements, found.own) == ("lion", "zoo.cats:lion", ("zoo==1.2", "einops"), False)


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    config = configfile.load(tmp_path)
    assert [each.alias for each in subjectspecs.specs(["a.b:build", "a.c:build"], config)] == ["b", "c"]
    with pytest.raises(ConfigError, match="are both called net"):
        subjectspecs.specs(["a.net:build", "b.net:build"], config)
    with pytest.raises(ConfigError, match="--alias is for one subject"):
        subjectspecs.specs(["a.b:build", "a.c:build"], config, alias="d")


# ---- on real torch


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with(tmp_path_factory.mktemp("check"), families=["init", "mps", "rope", "trace", "compile"])


def _check(project: Path, model: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_conformance(project, "check", f"{MODELS / model}", "--torch", "2.13.0", "--device", "cpu", *options)


@pytest.mark.slow
def test_a_frozen_size_is_silent_and_its_line_is_named(project: Path) -> None:
    done = _check(project, "frozen.py:build", "--family", "trace")
    assert done.returncode == 1, done.stderr
    assert "trace.trace_generalizes: wrong (silent)" in done.stdout
    assert re.search(r"frozen\.py:17: length = int\(x\.size\(1\)\)", done.stdout)


@pytest.mark.slow
def test_what_is_accepted_is_not_counted(project: Path) -> None:
    """The command that a check prints writes the expectation, and the next check takes its word; loud faults of a use can be counted."""
    first = _check(project, "frozen.py:build", "--family", "trace")
    command = re.search(r"conformance (--reports \S+ expect --update --file known\.toml --case) '(\S+)'", first.stdout)
    assert command is not None, first.stdout
    said = ("--reason", "its length is fixed", "--link", "https://example.com/1", "--review", "2027-06-01")
    written = run_conformance(project, *command[1].split(), command[2], *said)
    assert written.returncode == 0, written.stderr
    configured = (project / "pyproject.toml").read_text(encoding="utf-8")
    (project / "pyproject.toml").write_text(configured.replace("cases = ", 'expectations = ["known.toml"]\ncases = '), encoding="utf-8")
    accepted = _check(project, "frozen.py:build", "--family", "trace")
    counted = _check(project, "frozen.py:build", "--family", "trace", "--use", "all")
    (project / "pyproject.toml").write_text(configured, encoding="utf-8")
    assert (accepted.returncode, counted.returncode) == (0, 1), accepted.stdout + counted.stdout
    assert "exit code 0: nothing fails that counts\n  not counted: " in accepted.stdout


@pytest.mark.slow
def test_a_forgotten_scalar_is_named(project: Path) -> None:
    done = _check(project, "forgetful.py:build", "--family", "init")
    assert done.returncode == 1, done.stderr
    assert re.search(r"never written: temperature\n +\S+forgetful\.py:\d+: self\.temperature = ", done.stdout)


@pytest.mark.slow
def test_numbers_that_go_wrong_are_blamed_on_their_line(project: Path) -> None:
    models = (f"{MODELS / 'rotated.py'}:cast", f"{MODELS / 'masked.py'}:build")
    done = run_conformance(project, "check", *models, "--torch", "2.13.0", "--device", "cpu", "--family", "rope,mps")
    assert done.returncode == 1, done.stderr
    cast, masked = done.stdout.partition("masked on cpu\n")[::2]
    assert re.search(
        r"positions_keep_precision\[bfloat16\]: wrong \(silent\)[^\n]+\n +what rotary gives in torch\.bfloat16 is further off", cast
    )
    assert re.search(r"rotated\.py:\d+: def forward\(self, x: Tensor\) -> Tensor:", cast)
    assert re.search(r"mps\.gives_numbers: wrong \(silent\)[^\n]+\n +variation 'masked_row_1'[^\n]+ the first of aten::_softmax\n", masked)
    assert re.search(r"masked\.py:\d+: return self\.head\(scores\.softmax\(-1\) @ x\)", masked)


@pytest.mark.slow
def test_a_sound_model_passes_every_check(project: Path) -> None:
    done = _check(project, "sound.py:build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults" not in done.stdout


UNFIT = {
    "hangs": ("timeout", "did not end within 20 s", ""),
    "dies": ("crash", "exit code 3", ""),
    "no_inputs": ("raises", "takes inputs that nobody gave", ""),
    "needs_a_gpu": ("raises", "", "CUDA|NVIDIA"),
    "talks": ("crash", "output: ", "MB printed, the limit is 64 MB"),
}


@pytest.fixture(scope="module")
def unfit(project: Path) -> subprocess.CompletedProcess[str]:
    """One check of everything that could be handed over by mistake, and of a model that writes files."""
    path = MODELS / "unfit.py"
    models = [f"{path}:{build}" for build in (*UNFIT, "litters")]
    options = ("--torch", "2.13.0", "--device", "cpu", "--family", "init", "--case", "init.subject_copies*", "--timeout", "20")
    return run_conformance(project, "check", *models, *options)


@pytest.mark.slow
@pytest.mark.parametrize("build", UNFIT)
def test_an_unfit_subject_is_recorded_and_told(unfit: subprocess.CompletedProcess[str], build: str) -> None:
    assert unfit.returncode == 1, unfit.stderr
    verdict, *words = UNFIT[build]
    told = unfit.stdout.partition(f"{build} on cpu\n")[2].partition(" on cpu\n")[0]
    assert f"init.copies: {verdict} (loud) on ==2.13.0" in told
    assert all(re.search(each, told) for each in words), told
    assert "cure:" not in told


@pytest.mark.slow
def test_what_a_subject_writes_does_not_land_in_the_project(unfit: subprocess.CompletedProcess[str], project: Path) -> None:
    assert "init.copies  ✓" in re.sub(" +", "  ", unfit.stdout.partition("litters on cpu\n")[2])
    assert list(project.rglob("left_behind.txt")) == []
    assert list(MODELS.rglob("left_behind.txt")) == []


@pytest.mark.slow
def test_a_model_that_ends_every_process_is_not_built_for_every_check(project: Path) -> None:
    done = _check(project, "unfit.py:dies", "--family", "init")
    assert done.returncode == 1, done.stderr
    assert "every check: crash (loud) on ==2.13.0" in done.stdout
    assert "no check came to its question" in done.stdout
    cell = next((project / "reports" / "check" / "dies" / "results").iterdir())
    tails = [json.loads(line)["output_tail"] for line in (cell / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(tails) > 4
    assert len([tail for tail in tails if "ended so, while the model was built" in tail]) == len(tails) - 2


NEWCOMER = """
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "newcomer"
version = "0.1"
dependencies = ["torch>=2.12"]

[tool.setuptools]
py-modules = ["newcomer"]
"""
CALLS_A_NEWER_NAME = """
import torch
from torch import nn


class Net(nn.Linear):
    def forward(self, x):
        torch.compiler.get_default_backend()
        return super().forward(x)


def build():
    return Net(4, 4), (torch.zeros(2, 4),)
"""


@pytest.mark.slow
def test_a_release_that_cannot_have_a_package_says_so_and_the_other_goes_on(tmp_path: Path) -> None:
    project = project_with(tmp_path, families=["fallbacks"], extra=NEWCOMER)
    (project / "newcomer.py").write_text(CALLS_A_NEWER_NAME, encoding="utf-8")
    done = run_conformance(project, "check", "newcomer:build", "--torch", "2.11.0,2.13.0", "--device", "cpu", "--family", "fallbacks")
    for made in ENVIRONMENTS.glob("torch*-newcomer-*"):  # of this test's own folder, which no later run has
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    assert done.returncode == 1, done.stderr
    assert "fallbacks.touches       \u25c6       \u2713" in done.stdout
    assert re.search(r"fallbacks\.touches: error \(says nothing about torch\) on ==2\.11\.0\n +uv .* depends on torch>=2\.12", done.stdout)
    assert "torch>=2.12 (dependencies): holds on every measured release" in done.stdout
    assert "torch.compiler.get_default_backend: since 2.13.0, called on 2.13.0\n      newcomer.py:8: torch.compiler" in done.stdout
