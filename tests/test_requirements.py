"""What a project claims of torch, read from each kind of file that can say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import ConfigError
from conformance.requirements import classifiers, python_claim, torch_claims


def _project(folder: Path, pyproject: str = "", **files: str) -> Path:
    if pyproject:
        (folder / "pyproject.toml").write_text(pyproject, encoding="utf-8")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def test_dependencies_and_extras_each_claim(tmp_path: Path) -> None:
    text = (
        '[project]\nrequires-python = ">=3.10"\nclassifiers = ["Operating System :: MacOS"]\n'
        'dependencies = ["numpy", "Torch >=2.1 ; python_version > \'3\'", "torchvision>=0.20"]\n'
        '[project.optional-dependencies]\ngpu = ["torch>=2.4,<3"]\n[dependency-groups]\ntest = ["torch==2.0.1"]\n'
    )
    project = _project(tmp_path, text)
    claims = torch_claims(project)
    assert [(str(claim.specifier), claim.where) for claim in claims] == [
        (">=2.1", "pyproject.toml [project] dependencies"),
        ("<3,>=2.4", "pyproject.toml [project.optional-dependencies] gpu"),
    ]
    assert claims[0].claims("2.10.0")
    assert not claims[0].claims("2.0.1")
    python = python_claim(project)
    assert python is not None
    assert python.claims("3.11")
    assert classifiers(project) == ["Operating System :: MacOS"]


def test_a_bare_name_claims_every_release(tmp_path: Path) -> None:
    (claim,) = torch_claims(_project(tmp_path, '[project]\ndependencies = ["torch"]\n'))
    assert claim.claims("1.13.1")
    assert claim.claims("2.16.0.dev20261101")


def test_setuptools_reads_files_and_setup_cfg(tmp_path: Path) -> None:
    text = '[tool.setuptools.dynamic]\ndependencies = { file = ["requirements__txt"] }\n'.replace("__", ".")
    project = _project(
        tmp_path,
        text,
        requirements__txt="# ours\n-r other.txt\ntorch>=2.2  # why\n",
        setup__cfg="[options]\ninstall_requires =\n    torch<2.9\n    x\n",
    )
    assert [(claim.text, claim.where) for claim in torch_claims(project)] == [
        ("torch>=2.2", "requirements.txt:3"),
        ("torch<2.9", "setup.cfg [options] install_requires"),
    ]


@pytest.mark.parametrize(
    ("constraint", "within", "outside"),
    [
        ("^2.1", "2.15.0", "3.0.0"),
        ("~2.1", "2.1.2", "2.2.0"),
        ("~2", "2.9.1", "3.0"),
        (">=2.1,<2.3", "2.2.2", "2.3.1"),
        ("2.1.2", "2.1.2", "2.1.1"),
    ],
)
def test_poetry_writes_ranges_its_own_way(tmp_path: Path, constraint: str, within: str, outside: str) -> None:
    (claim,) = torch_claims(_project(tmp_path, f'[tool.poetry.dependencies]\ntorch = {{ version = "{constraint}" }}\n'))
    assert claim.claims(within)
    assert not claim.claims(outside)


def test_a_star_claims_everything(tmp_path: Path) -> None:
    (claim,) = torch_claims(_project(tmp_path, '[tool.poetry.dependencies]\ntorch = "*"\n'))
    assert claim.claims("1.13.1")


def test_what_claims_nothing_is_empty(tmp_path: Path) -> None:
    assert torch_claims(tmp_path) == []
    assert python_claim(tmp_path) is None
    assert torch_claims(_project(tmp_path, '[project]\ndependencies = "torch"\n')) == []


@pytest.mark.parametrize("text", ["[project", '[project]\nrequires-python = "new"\n', '[tool.poetry.dependencies]\ntorch = "^^2"\n'])
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    project = _project(tmp_path, text)
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        (python_claim(project), torch_claims(project))
