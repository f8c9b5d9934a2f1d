"""Environments through uv, from a local index and a local wheel, with a stand-in distribution named torch: no real one is needed here."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance import configfile, plan
from conformance.config import Config
from conformance.environments import Environments
from conformance.environmentspecs import Request
from conformance.errors import InstallError

VERSION = "2.99.0"


def _wheel(folder: Path, version: str = VERSION) -> Path:
    path = folder / f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("torch/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"torch/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A PyTorch-like index with a `cpu` folder, served on this machine; its address."""
    folder = tmp_path / "index" / "whl" / "cpu" / "torch"
    folder.mkdir(parents=True)
    wheel = _wheel(folder, f"{VERSION}+cpu")
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>', encoding="utf-8")
    handler = functools.partial(_Quiet, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/whl"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def _configured(folder: Path, extra: str = "", release: str = "") -> Config:
    text = f"""[tool.conformance]
python-downloads = false
{extra}
[tool.conformance.releases]
"{VERSION}" = {{ python = "3.11" {release} }}
[tool.conformance.limits]
free-disk-gb = 0.01
"""
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return configfile.load(folder)


def _request(environments: Environments, configured: Config) -> Request:
    made = plan.make(configured, plan.Selection(torch=VERSION, devices=("cpu",), families=("init",)))
    return environments.request(made.cells[0])


@pytest.mark.slow
def test_a_local_copy_of_the_index_serves_cpu_builds(tmp_path: Path, index: str) -> None:
    said: list[str] = []
    configured = _configured(tmp_path, f'pytorch-index-url = "{index}"')
    environments = Environments(configured, said.append)
    request = _request(environments, configured)
    assert request.backend == "cpu"
    environment = environments.provide(request)
    assert environment.torch_build == f"{VERSION}+cpu"
    assert not [line for line in said if "cannot be reached" in line]
    assert not [line for line in environment.lock if line.startswith(("torch-conformance", "pandas"))]


@pytest.mark.slow
def test_reuse_only_of_what_was_asked_for_and_starts(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path)
    said: list[str] = []
    configured = _configured(tmp_path, release=f', wheel = "{wheel.name}"')
    environments = Environments(configured, said.append)
    request = _request(environments, configured)
    first = environments.provide(request)
    assert environments.provide(request) == first
    assert len(said) == 1
    shutil.rmtree(next(first.path.glob("lib/python*/site-packages/torch-*.dist-info")))
    assert environments.provide(request) == first
    (first.path / "bin" / "python").unlink()
    assert environments.provide(request) == first
    assert len(said) == 3


def test_an_index_that_does_not_answer_is_said_once_and_pypi_is_taken(tmp_path: Path) -> None:
    said: list[str] = []
    configured = _configured(tmp_path, 'pytorch-index-url = "http://127.0.0.1:9/whl"')
    environments = Environments(configured, said.append)
    assert [_request(environments, configured).backend for _ in range(3)] == ["", "", ""]
    assert len(said) == 1
    assert "cannot be reached: taking PyPI's builds" in said[0]


@pytest.mark.slow
def test_a_release_that_the_index_has_not_is_told_in_its_own_words(tmp_path: Path, index: str) -> None:
    configured = _configured(tmp_path, f'pytorch-index-url = "{index}"\nindex = "pytorch"')
    environments = Environments(configured, lambda line: None)
    absent = _request(environments, configured)
    with pytest.raises(InstallError) as caught:
        environments.provide(Request(torch="2.98.0", python=absent.python, backend="cpu", requirements=()))
    assert "torch==2.98.0" in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    assert not [path for path in configured.environments.glob("torch2.98*") if path.is_dir()]


def test_no_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    configured = _configured(tmp_path)
    short = Environments(configfile.load(tmp_path, {"limits": {**_limits(), "free-disk-gb": 1e9}}), lambda line: None)
    with pytest.raises(InstallError, match=r"GB are free, this install needs about 1000000000.0 GB.*--drop-environments"):
        short.provide(_request(Environments(configured, lambda line: None), configured))


def _limits() -> dict[str, object]:
    return {"timeout-s": 1, "memory-mb": 1, "output-mb": 1, "install-s": 60}


def test_cells_of_one_release_share_an_environment_and_pins_make_another(tmp_path: Path) -> None:
    configured = _configured(tmp_path, 'index = "pypi"')
    environments = Environments(configured, lambda line: None)
    cells = {cell.cell.device: cell for cell in plan.make(configured, plan.Selection(torch="2.8.0", families=("init",))).cells}
    assert environments.request(cells["cpu"]) == environments.request(cells["meta"])
    xla = plan.make(configured, plan.Selection(torch="2.9.0", devices=("xla",), families=("init",))).cells[0]
    assert "torch-xla==2.9.0" in environments.request(xla).requirements
    assert environments.request(cells["cpu"]).folder != environments.request(cells["cpu"], "transformers", ("transformers",)).folder


def test_what_a_case_asks_for_goes_before_a_pin_of_the_release(tmp_path: Path) -> None:
    config = _configured(tmp_path, release=', pins = ["numpy<2", "setuptools<80"]')
    cell = plan.make(config, plan.Selection(torch=VERSION, devices=("cpu",))).cells[0]
    environments = Environments(config, print)
    assert environments.request(cell).requirements == ("numpy<2", "setuptools<80")
    assert environments.request(cell, "numpy", ["numpy>=2"]).requirements == ("setuptools<80", "numpy>=2")
