from __future__ import annotations

from pathlib import Path

import pytest

from conformance import configfile
from conformance.config import Config
from conformance.errors import ConfigError


def _load(folder: Path, text: str) -> Config:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return configfile.load(folder)


def test_defaults_hold_without_a_pyproject(tmp_path: Path) -> None:
    loaded = configfile.load(tmp_path)
    assert loaded.reports == tmp_path / "reports"
    assert loaded.profiles["quick"] == ("2.0.1", "2.8.0", "2.15.0")
    assert loaded.releases["2.2.2"].pins[0] == "numpy<2"
    assert loaded.releases["2.0.1"].python == "3.10"


def test_every_release_of_a_profile_is_known_and_full_has_every_minor() -> None:
    loaded = configfile.load(Path(__file__).parent)
    minors = {tuple(version.split(".")[:2]) for version in loaded.profiles["full"]}
    assert minors == {("1", "13"), *(("2", str(minor)) for minor in range(16))}


def test_tables_are_merged_by_name(tmp_path: Path) -> None:
    text = "[tool.conformance.releases]\n'2.16.0.dev20261120' = { python = '3.12', index-url = 'https://example.org/nightly' }\n"
    loaded = _load(tmp_path, text)
    assert loaded.releases["2.16.0.dev20261120"].python == "3.12"
    assert "2.4.1" in loaded.releases


def test_all_mistakes_come_in_one_error(tmp_path: Path) -> None:
    text = """
[tool.conformance]
profil = "quick"
device = ["cpu"]
devices = ["cdua"]
seed = "0"
index = "conda"
cases = ["absent"]
[tool.conformance.limits]
timeout = 3
memory-mb = -1
[tool.conformance.releases]
"2.4.1" = { python = "3.11", pin = ["numpy"], pins = ["num py"] }
"two" = { python = "3.11" }
"2.5.0+cpu" = { python = "3.11", wheel = "absent.whl" }
[tool.conformance.profiles]
mine = ["2.4.2"]
"""
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    message = str(caught.value)
    for words in (
        f"{tmp_path / 'pyproject.toml'}: [tool.conformance] is wrong",
        "profil: unknown key; perhaps you meant 'profile'",
        "device: unknown key; perhaps you meant 'devices'",
        "devices: 'cdua' is not known; perhaps you meant 'cuda'",
        "seed: must be a whole number, is a text '0'",
        "index: 'conda' is not known",
        "cases: " + str(tmp_path / "absent") + " does not exist",
        "limits.timeout: unknown key; perhaps you meant 'timeout-s'",
        "limits.memory-mb: must be more than 0",
        "releases.2.4.1.pin: unknown key; perhaps you meant 'pins'",
        "'num py' is no requirement",
        "releases.two: 'two' is no version",
        "releases.2.5.0+cpu: a release has no local part",
        "absent.whl does not exist",
        "profiles.mine: unknown release '2.4.2'",
    ):
        assert words in message, (words, message)


@pytest.mark.parametrize("text", ["[tool.conformance", "tool = 3\n[tool.conformance]", "[tool]\nconformance = 3"])
def test_broken_files_are_told_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        _load(tmp_path, text)


def test_targets_are_replaced_and_checked(tmp_path: Path) -> None:
    text = "[[tool.conformance.targets]]\nplatform = 'linux_x86_64'\ndevice = 'cpu'\nreleases = '2.4'\n"
    with pytest.raises(ConfigError, match="no version specifier"):
        _load(tmp_path, text)
    loaded = _load(tmp_path, text.replace("'2.4'", "'>=2.4'").replace("platform", "tag = 'b'\nplatform"))
    assert [(target.device, target.tag) for target in loaded.targets] == [("cpu", "b")]
