"""`conformance bisect`: the search over planted histories, stored results, nightlies of an index, and two real releases."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from builders import cell, environment, record, write_cell
from conftest import ENVIRONMENTS, ROOT, project_with, run_conformance, run_here
from packaging.version import Version

from conformance import bisecting, configfile, nightlies
from conformance.bisectresult import Asked
from conformance.cells import this_platform
from conformance.changesearch import History, search
from conformance.errors import InstallError
from conformance.onecase import OneCase
from conformance.readings import Reading
from conformance.results import CellResult

RELEASES = [Version(f"2.{minor}.0") for minor in range(16)]


def _reading(version: Version, value: str) -> Reading:
    where = cell(str(version))
    return Reading(version, value, CellResult(where, environment(where)), None)


def _searched(values: Mapping[int, str | None], known: tuple[int, ...] = ()) -> tuple[History, list[int]]:
    """A search over sixteen releases whose values are planted: each holds from its minor on, None cannot be measured."""
    asked: list[int] = []

    def value(version: Version) -> str | None:
        return values[max(minor for minor in values if minor <= version.minor)]

    def measure(version: Version) -> Reading | None:
        asked.append(version.minor)
        found = value(version)
        return None if found is None else _reading(version, found)

    stored = {RELEASES[minor]: _reading(RELEASES[minor], str(value(RELEASES[minor]))) for minor in known}
    return search(RELEASES, stored, measure), asked


@pytest.mark.parametrize("at", range(1, 16))
def test_a_change_is_found_wherever_it_is(at: int) -> None:
    history, asked = _searched({0: "pass", at: "wrong"})
    assert history.before is not None
    assert history.after is not None
    assert (history.before.version.minor, history.after.version.minor) == (at - 1, at)
    assert len(asked) == len(set(asked)) <= 6


def test_nothing_is_run_where_the_answer_is_known() -> None:
    history, asked = _searched({0: "pass", 9: "wrong"}, known=(0, 8, 9, 15))
    assert history.after is not None
    assert history.after.version.minor == 9
    assert asked == []


def test_what_is_known_narrows_the_search() -> None:
    _, asked = _searched({0: "pass", 9: "wrong"}, known=(7, 10))
    assert sorted(asked) in ([8], [8, 9])


def test_equal_ends_claim_nothing_of_what_lies_between() -> None:
    history, asked = _searched({0: "pass", 5: "wrong", 6: "pass"})
    assert history.after is None
    assert asked == [0, 15]
    assert "not measured: 2.1.0, 2.2.0" in "\n".join(history.lines())


def test_a_history_that_goes_back_is_told() -> None:
    history, asked = _searched({0: "pass", 5: "wrong", 9: "pass"}, known=(0, 7, 15))
    assert history.after is not None
    assert history.after.version.minor == 5
    told = "\n".join(history.lines())
    assert "it changes 2 times: pass to wrong at 2.5.0 (last as before on 2.4.0); wrong to pass at 2.15.0 (last as before on 2.7.0)" in told
    assert 12 not in asked


@pytest.mark.parametrize("hole", [(7,), (6, 7, 8), (8,)])
def test_a_release_that_cannot_be_measured_is_a_hole(hole: tuple[int, ...]) -> None:
    values: dict[int, str | None] = {0: "pass", 9: "wrong"}
    for minor in hole:
        values[minor] = None
        values.setdefault(minor + 1, "wrong" if minor + 1 >= 9 else "pass")
    history, _ = _searched(values)
    assert history.before is not None
    assert history.after is not None
    assert history.after.version.minor == 9
    assert [version.minor for version in history.between] == [minor for minor in hole if minor == 8 or hole == (6, 7, 8)]


def test_an_end_that_cannot_be_measured_moves_inward() -> None:
    history, _ = _searched({0: None, 2: "pass", 4: "wrong", 15: None})
    assert history.after is not None
    assert history.after.version.minor == 4


# ---- stored results

CASE = "init.initialiser_repeats[float32-trunc_normal_]"
NATIVE = "fallbacks.rms_norm_default_eps_native"


def _bits(digest: str) -> dict[str, object]:
    tensor = {"kind": "tensor", "dtype": "float32", "shape": [4], "stride": [1], "digest": digest, "values": []}
    return {"observations": {"bits": tensor}, "params": {"dtype": "float32", "initialiser": "trunc_normal_"}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with stored results of every minor release from 2.0 on: bits change at 2.12, an API comes with 2.4."""
    project_with(tmp_path, families=["init", "fallbacks"])
    for release in configfile.load(tmp_path).profiles["full"]:
        version = Version(release)
        where = replace(cell(release), platform=this_platform())
        rows = [record(where, CASE, **_bits("aaaa" if version < Version("2.12") else "bbbb"))]
        verdict, reason = ("unsupported", "no rms_norm") if version < Version("2.4") else ("wrong", "")
        rows.append(record(where, NATIVE, verdict if version < Version("2.7") else "pass", reason=reason))
        write_cell(tmp_path / "reports", where, rows)
    return tmp_path


def _bisect(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(project, "bisect", *arguments)


def test_bits_that_change_are_found_without_being_named(project: Path) -> None:
    done = _bisect(project, CASE)
    assert done.returncode == 0, done.stderr
    assert f"{CASE} on cpu: observation bits\nchanges at torch 2.12.1, last as before on 2.11.0\n" in done.stdout
    assert "0 measured now in 0 s, 0 environments made" in done.stdout
    script = (project / "reports" / "bisect" / "init.initialiser_repeats-float32-trunc_normal_.py").read_text(encoding="utf-8")
    assert "BEFORE, AFTER = ('torch 2.11.0', 'aaaa'), ('torch 2.12.1', 'bbbb')" in script
    assert "import conformance" not in script
    assert "from conformance" not in script


def test_the_first_of_several_changes_is_told_with_the_others(project: Path) -> None:
    done = _bisect(project, NATIVE)
    assert "changes at torch 2.4.1, last as before on 2.3.1" in done.stdout
    assert "it changes 2 times" in done.stdout
    assert "wrong: torch >=2.4, <2.7" in done.stdout
    later = _bisect(project, NATIVE, "--between", "2.4.1", "2.15.0")
    assert "changes at torch 2.7.1, last as before on 2.6.0" in later.stdout


def test_what_was_published_is_known_too(tmp_path: Path) -> None:
    """A fresh clone has the published columns and no results of its own."""
    shutil.copytree(ROOT / "reports" / "published", tmp_path / "reports" / "published")
    project_with(tmp_path, families=["init", "fallbacks"])
    done = _bisect(tmp_path, NATIVE)
    assert done.returncode == 0, done.stderr
    assert "changes at torch 2.4.1, last as before on 2.3.1" in done.stdout
    assert "0 measured now" in done.stdout


def test_no_change_is_an_answer_too(project: Path) -> None:
    done = _bisect(project, NATIVE, "--between", "2.7.1", "2.15.0")
    assert done.returncode == 1
    assert "no change among what was measured" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.at_all",), "no case matches 'nothing.at_all'"),
        ((CASE, "--observation", "bit"), "observes no such thing; close: bits"),
        ((CASE, "--between", "2.4.1", "2.99"), "--between 2.99: not planned here"),
        ((CASE, "--between", "2.4.1", "new"), "'new' is no release"),
        (("*", "--device", "cpu"), "fits 2 cases"),
    ],
)
def test_what_cannot_be_searched_is_told(project: Path, arguments: tuple[str, ...], message: str) -> None:
    done = _bisect(project, *arguments)
    assert re.search(message, done.stdout + done.stderr), done.stdout + done.stderr


# ---- nightlies

WHEELS = (
    "torch-2.12.0.dev20260105+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.12.0.dev20260106%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.12.0.dev20260106+cpu-cp312-cp312-manylinux_2_28_x86_64.whl",
    "torch-2.12.0.dev20260107+cpu-cp311-cp311-manylinux_2_28_aarch64.whl",
    "torch-2.12.0.dev20260107-cp311-none-macosx_11_0_arm64.whl",
    "torch-2.16.0.dev20261101+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.11.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-nonsense.whl",
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *unused: object) -> None:
        """Say nothing."""


def _list(root: Path, names: Iterable[str]) -> None:
    """Make `names` the files that the index in this folder lists for torch."""
    folder = root / "nightly" / "cpu" / "torch"
    folder.mkdir(parents=True, exist_ok=True)
    links = "".join(f'<a href="../{name}#sha256=0">{name}</a><br>' for name in names)
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>", encoding="utf-8")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of a package index with nightlies."""
    _list(tmp_path, WHEELS)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_nightlies_are_those_that_fit(tmp_path: Path, index: str) -> None:
    config = replace(configfile.load(tmp_path), pytorch_index_url=index)
    like = config.releases["2.12.1"]
    found = nightlies.between(config, "cpu", "linux_x86_64", Version("2.11.0"), Version("2.12.1"), like)
    assert list(found) == ["2.12.0.dev20260105", "2.12.0.dev20260106"]
    assert found["2.12.0.dev20260105"].index_url == f"{index}/nightly/cpu"
    newer = nightlies.between(config, "cpu", "linux_x86_64", Version("2.15.0"), None, like)
    assert list(newer) == ["2.16.0.dev20261101"]
    assert list(nightlies.between(config, "mps", "macos_arm64", Version("2.11.0"), None, like)) == ["2.12.0.dev20260107"]


def test_an_index_that_does_not_answer_is_told(tmp_path: Path, index: str) -> None:
    config = replace(configfile.load(tmp_path), pytorch_index_url=f"{index}/nowhere")
    like = config.releases["2.12.1"]
    with pytest.raises(InstallError, match="does not answer: File not found"):
        nightlies.between(config, "cpu", "linux_x86_64", Version("2.11.0"), None, like)
    with pytest.raises(InstallError, match="no index of nightlies is known for cuda"):
        nightlies.between(config, "cuda", "linux_x86_64", Version("2.11.0"), None, like)


@pytest.mark.parametrize(
    ("between", "ends"), [(("2.11.0", "2.12.1"), ("20260104", "20260105")), (("2.12.1", "nightly"), ("20261103", "20261104"))]
)
def test_a_search_goes_on_among_nightlies(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch, between: tuple[str, str], ends: tuple[str, str]
) -> None:
    days = {"2.12.0": [f"202601{day:02}" for day in range(1, 9)], "2.16.0": [f"202611{day:02}" for day in range(1, 9)]}
    names = [f"torch-{base}.dev{day}+cpu-cp311-cp311-manylinux_2_28_x86_64.whl" for base, listed in days.items() for day in listed]
    _list(tmp_path, names)
    asked: list[str] = []

    def measure(costs: OneCase, version: Version) -> Reading:
        assert version.is_devrelease == costs.config.releases[str(version)].index_url.startswith(index)
        asked.append(str(version))
        changed = Version(f"2.12.0.dev{ends[1]}"), Version(f"2.16.0.dev{ends[1]}")
        return _reading(version, str(sum(version >= change for change in changed)))

    monkeypatch.setattr(OneCase, "measure", measure)
    monkeypatch.setattr(bisecting, "this_platform", lambda: "linux_x86_64")
    project_with(tmp_path, families=["init"])
    config = replace(configfile.load(tmp_path), pytorch_index_url=index)
    found = bisecting.bisect(config, Asked(case=CASE, between=between), print)
    assert found.history.before is not None
    assert found.history.after is not None
    neighbours = [str(each.version).rpartition("dev")[2] for each in (found.history.before, found.history.after)]
    assert neighbours == list(ends)
    assert len(asked) == len(set(asked)) <= 6


# ---- on real torch


@pytest.mark.slow
def test_two_real_releases_differ_and_the_script_shows_it(tmp_path: Path) -> None:
    project = project_with(tmp_path, families=["init"])
    done = run_conformance(project, "bisect", CASE, "--between", "2.11.0", "2.13.0", "--observation", "bits", "--keep-environments")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"changes at torch 2\.1[23]\.\d", done.stdout)
    reports = project / "reports" / "bisect"
    script = reports / "init.initialiser_repeats-float32-trunc_normal_.py"
    for release, code in (("2.11.0", 0), ("2.13.0", 1)):
        (python,) = ENVIRONMENTS.glob(f"torch{release}-*-base-*/bin/python")
        ran = subprocess.run([str(python), "-I", str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == code, ran.stdout + ran.stderr
    again = _bisect(project, CASE, "--observation", "bits", "--between", "2.11.0", "2.13.0")
    assert "0 measured now" in again.stdout
