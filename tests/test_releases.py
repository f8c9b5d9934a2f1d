"""New releases of torch: what the index has beyond the configuration, and the edit that adds it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance import cli, configfile, releases
from conformance.config import Config
from conformance.errors import ConfigError
from conformance.releases import Index
from tests.conftest import ROOT

DEFAULTS = (ROOT / "conformance" / "defaults.toml").read_text(encoding="utf-8")
NEWEST = list(configfile.load(ROOT).releases)[-1]


def _index(*have: tuple[str, str]) -> Index:
    """An index that has these versions, each from some Python on, and all that is configured."""
    known = [(version, "3.9") for version in configfile.load(ROOT).releases]

    def newest(versions: str, python: str) -> Version | None:
        fits = SpecifierSet(versions)
        found = [Version(one) for one, since in [*known, *have] if one in fits and Version(since) <= Version(python)]
        return max(found, default=None)

    return newest


@pytest.fixture
def checkout(tmp_path: Path) -> Config:
    """A checkout of the tool: what is written goes into its own defaults."""
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "defaults.toml").write_text(DEFAULTS, encoding="utf-8")
    return configfile.load(tmp_path)


def test_an_index_with_nothing_more_says_nothing(checkout: Config) -> None:
    assert releases.new(checkout, _index()) == []


def test_minors_and_patches_are_found_with_a_python_that_has_a_wheel(checkout: Config) -> None:
    found = releases.new(checkout, _index(("2.4.2", "3.9"), ("2.98.0", "3.11"), ("2.98.1", "3.11"), ("3.0.0", "3.13")))
    assert [(one.release.version, one.release.python, one.after, one.patch) for one in found] == [
        ("2.4.2", "3.11", "2.4.1", True),
        ("2.98.1", "3.11", NEWEST, False),
        ("3.0.0", "3.13", "2.98.1", False),
    ]
    assert found[0].release.pins == ("numpy", "setuptools<80")
    assert str(found[2]) == "torch 3.0.0 is newer than 2.98.1 (Python 3.13)"


def test_what_is_written_is_the_releases_and_their_profiles_alone(checkout: Config) -> None:
    path = releases.add(checkout, releases.new(checkout, _index(("2.4.2", "3.9"), ("2.98.1", "3.11"), ("3.0.0", "3.13"))))
    assert path == checkout.project / "conformance" / "defaults.toml"
    lines, before = path.read_text(encoding="utf-8").splitlines(), DEFAULTS.splitlines()
    added = [line for line in lines if line not in before]
    assert '"2.4.2" = { python = "3.11", pins = ["numpy", "setuptools<80"] }' in added
    assert lines.index(added[0]) == lines.index('"2.4.1" = { python = "3.11", pins = ["numpy", "setuptools<80"] }') + 1
    read = releases.tomllib.loads(path.read_text(encoding="utf-8"))
    was = releases.tomllib.loads(DEFAULTS)
    assert read["profiles"]["quick"] == [*was["profiles"]["quick"][:-1], "3.0.0"]
    assert read["profiles"]["full"] == [{"2.4.1": "2.4.2"}.get(one, one) for one in was["profiles"]["full"]] + ["2.98.1", "3.0.0"]
    assert len([line for line in before if line not in lines]) <= 3


def test_a_project_gets_them_in_its_own_table(tmp_path: Path) -> None:
    text = f'[project]\nname = "x"\n\n[tool.conformance.profiles]\nmine = ["2.8.0", "{NEWEST}"]  # ours\n\n[tool.other]\nkey = 1\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    config = configfile.load(tmp_path)
    releases.add(config, releases.new(config, _index(("2.98.0", "3.11"))))
    after = configfile.load(tmp_path)
    assert after.releases["2.98.0"].python == "3.11"
    assert after.profiles["mine"] == ("2.8.0", "2.98.0")
    assert "# ours" in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")


def test_a_text_that_does_not_lend_itself_to_the_edit_stays_as_it_is(tmp_path: Path) -> None:
    text = '[tool]\nconformance = { releases = { "2.8.0" = { python = "3.12" } } }\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    config = configfile.load(tmp_path)
    with pytest.raises(ConfigError, match=r'by hand:\n  "2\.98\.0" = \{ python = "3\.11"'):
        releases.add(config, releases.new(config, _index(("2.98.0", "3.11"))))
    assert (tmp_path / "pyproject.toml").read_text(encoding="utf-8") == text


def test_an_index_without_what_is_known_is_not_taken_for_one_without_news(checkout: Config) -> None:
    with pytest.raises(ConfigError, match=f"has no torch {NEWEST}, which is known"):
        releases.new(checkout, lambda versions, python: None)


def _wheel(folder: Path, version: str, tag: str = "py3-none-any") -> None:
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_uv_is_asked_with_the_index_that_it_is_configured_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version, tag in (("2.8.0", "py3-none-any"), ("2.98.0rc1", "py3-none-any"), ("2.98.0", "cp312-cp312-manylinux_2_28_x86_64")):
        _wheel(folder, version, tag)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    assert releases.asked_of_uv("==2.8.0", "3.11") == Version("2.8.0")
    assert releases.asked_of_uv(">2.8.0", "3.11") is None
    assert releases.asked_of_uv(">2.8.0", "3.12") == Version("2.98.0")
    assert cli.main(["--project", str(tmp_path), "releases", "--new"]) == 2
    assert f"has no torch {NEWEST}" in capsys.readouterr().err
