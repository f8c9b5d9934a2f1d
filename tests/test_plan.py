from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conformance import configfile, plan
from conformance.config import Config
from conformance.environmentathand import here
from conformance.errors import ConfigError, NoEnvironmentError, NothingSelectedError
from conformance.plan import Selection


@pytest.fixture
def configured(tmp_path: Path) -> Config:
    return configfile.load(tmp_path)


def _ids(configured: Config, **asked: object) -> list[str]:
    asked.setdefault("platform", "linux_x86_64")
    return [str(cell.cell) for cell in plan.make(configured, Selection(**asked)).cells]  # type: ignore[arg-type]


def test_quick_profile_on_named_devices(configured: Config) -> None:
    assert _ids(configured, devices=("cpu",)) == [
        "torch2.0.1-py3.10-cpu-linux_x86_64",
        "torch2.8.0-py3.11-cpu-linux_x86_64",
        "torch2.15.0-py3.11-cpu-linux_x86_64",
    ]


def test_specifier_selects_by_version_not_by_text(configured: Config) -> None:
    assert _ids(configured, torch="==2.1.*", devices=("cpu",)) == ["torch2.1.2-py3.11-cpu-linux_x86_64"]


def test_xla_is_planned_with_its_one_release(configured: Config) -> None:
    assert [one for one in _ids(configured, profile="full") if "-xla-" in one] == ["torch2.9.0-py3.11-xla-linux_x86_64"]
    assert "torch2.9.0-py3.11-cpu-linux_x86_64" not in _ids(configured, profile="full")


def test_other_platforms_are_planned_with_their_labels(configured: Config) -> None:
    made = plan.make(configured, Selection(platform="all", torch="2.8.0"))
    rows = json.loads(json.dumps([cell.as_json() for cell in made.cells]))
    assert {row["runs_on"] for row in rows} == {"ubuntu-24.04", "macos-15"}
    assert {"cell", "torch", "python", "device", "platform", "runs_on"} == set(rows[0])


def test_every_cell_that_is_out_has_a_reason(configured: Config) -> None:
    made = plan.make(configured, Selection(platform="linux_x86_64", devices=("cpu",), skip=("torch2.8*",)))
    reasons = dict(made.excluded)
    assert reasons["torch2.8.0-py3.11-cpu-linux_x86_64"] == "not selected by --only or --skip"
    assert reasons["torch2.4.1-py3.11-cpu-linux_x86_64"] == "release not in the profile"
    assert reasons["torch2.8.0-py3.11-mps-macos_arm64"] == "for macos_arm64, not linux_x86_64"
    assert reasons["torch2.8.0-py3.11-meta-linux_x86_64"] == "device meta is not asked for"
    assert len(made.cells) + len(made.excluded) == len(configured.targets) * len(configured.releases)


def test_named_devices_are_remembered(configured: Config) -> None:
    named = plan.make(configured, Selection(platform="linux_x86_64", devices=("cuda",), torch="2.8.0")).cells[0]
    assert named.named
    assert not plan.make(configured, Selection(platform="linux_x86_64", torch="2.8.0")).cells[0].named


def test_who_names_a_cell_asks_for_its_device(configured: Config) -> None:
    """Where no sign of the device is seen, as on a GPU machine with an unusual driver, the probe in the cell decides."""
    cell = "torch2.8.0-py3.11-xpu-linux_x86_64"
    made = plan.make(configured, Selection(platform="linux_x86_64", cells=(cell,)))
    assert [(str(each.cell), each.named) for each in made.cells] == [(cell, True)]
    with pytest.raises(ConfigError, match="no cell matches"):
        _ids(configured, cells=("torch2.8.0-py3.11-xpu*",))
    with pytest.raises(ConfigError, match="no cell matches"):
        _ids(configured, cells=(cell,), devices=("cpu",))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"devices": ("gpu",)}, "--device 'gpu' is not known"),
        ({"devices": ("mps",)}, "no target for it on linux_x86_64"),
        ({"profile": "fulll"}, "close: full"),
        ({"families": ("trase",)}, "close: trace"),
        ({"cells": ("torch2.4.2-py3.11-cpu-linux_x86_64",)}, "no cell matches"),
        ({"skip": ("nothing*",)}, "no cell matches 'nothing*'"),
        ({"cases": ("init.absent_case",)}, "no case matches 'init.absent_case'"),
    ],
)
def test_selectors_without_a_match_are_errors(configured: Config, asked: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _ids(configured, **asked)
    assert words in str(caught.value)


def test_an_empty_plan_says_why(configured: Config) -> None:
    with pytest.raises(NothingSelectedError) as caught:
        _ids(configured, torch="1.13.1", devices=("meta",))
    assert "the target takes releases >=2.0,!=2.9.0" in str(caught.value)
    assert caught.value.exit_code == 3


def test_case_selects_the_files_that_can_hold_it(tmp_path: Path) -> None:
    cases = tmp_path / "mine"
    cases.mkdir()
    (cases / "test_a.py").write_text(
        "def test_one(): ...\nclass TestGroup:\n    def test_two(self): ...\n    class TestInner:\n        def test_in(self): ...\n",
        encoding="utf-8",
    )
    (cases / "test_b.py").write_text("def test_three(): ...\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.conformance]\ncases = ['mine']\n", encoding="utf-8")
    configured = configfile.load(tmp_path)
    for pattern in ("user.one", "user.one[x-1]", "user.one*", "user.Group.two", "user.Group.Inner.in"):
        made = plan.make(configured, Selection(platform="linux_x86_64", families=("user",), cases=(pattern,)))
        assert [file.path.name for file in made.files] == ["test_a.py"]


def test_equal_plans_are_equal_bytes(configured: Config) -> None:
    first, second = (json.dumps(plan.make(configured, Selection(platform="linux_x86_64")).as_json()) for _ in range(2))
    assert first == second


def test_two_files_of_one_id_are_refused_with_both_paths(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "mine" / folder).mkdir(parents=True)
        (tmp_path / "mine" / folder / "test_x.py").write_text("def test_one(): ...\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.conformance]\ncases = ['mine']\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"user\.x: .*mine/a/test_x\.py and .*mine/b/test_x\.py"):
        plan.make(configfile.load(tmp_path), Selection(platform="linux_x86_64", families=("user",)))


def test_two_targets_of_one_cell_are_refused(tmp_path: Path) -> None:
    target = "[[tool.conformance.targets]]\nplatform = 'linux_x86_64'\ndevice = 'cpu'\n"
    (tmp_path / "pyproject.toml").write_text(target + target, encoding="utf-8")
    with pytest.raises(ConfigError, match="two targets make the cell"):
        plan.make(configfile.load(tmp_path), Selection(platform="linux_x86_64"))


def test_here_is_the_cell_of_the_environment_that_runs_this(configured: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"torch": "2.13.0+cpu"}.__getitem__)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (own,) = plan.make(*here(configured, Selection())).cells
    assert (own.cell.torch, own.cell.python, own.cell.device) == ("2.13.0", python, "cpu")


def test_here_without_torch_is_no_environment(configured: Config) -> None:
    with pytest.raises(NoEnvironmentError, match="this environment has no torch"):
        here(configured, Selection())
