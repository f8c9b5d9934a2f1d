"""The table of MPS support, questions to it, and audits of recordings: all without torch. The wheels themselves are read in a slow test."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, run_conformance

from conformance import configfile
from conformance.errors import ConfigError
from conformance.mps import audits, declarations, hazards, operators, registrations, wheels
from conformance.mps.answers import Needs, answer
from conformance.mps.machobinaries import MEMBER, Library
from conformance.mps.table import Table, stored, with_installed
from conformance.report import audit as page

#: Release -> kernels, and kernels by delegation, that native_functions.yaml declares: torchgen counts them so, each macOS library has them.
DECLARED = {
    "1.13.1": (260, 209),
    "2.0.1": (307, 228),
    "2.1.2": (349, 261),
    "2.2.2": (370, 274),
    "2.3.1": (382, 276),
    "2.4.1": (388, 277),
    "2.5.1": (405, 281),
    "2.6.0": (417, 290),
    "2.7.1": (434, 305),
    "2.8.0": (475, 338),
    "2.9.1": (499, 348),
    "2.10.0": (506, 349),
    "2.11.0": (515, 352),
    "2.12.1": (523, 355),
    "2.13.0": (533, 357),
    "2.14.1": (549, 363),
    "2.15.0": (561, 367),
}

YAML = """
# - func: commented(Tensor self) -> Tensor
- func: plain(Tensor self) -> Tensor  # decomposes

- func: kernel(Tensor self) -> Tensor
  dispatch:
    CPU, CUDA: kernel
    Meta, MPS: kernel_mps
  autogen: kernel.out

- func: handed.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: handed_out
    MPS: handed_out_mps

- func: handed(Tensor self) -> Tensor
  structured_delegate: handed.out

- func: lost.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, CUDA: lost_out

- func: lost(Tensor self) -> Tensor
  structured_delegate: lost.out
  variants: function, method

- func: composite(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: composite

- func: both(Tensor self) -> Tensor
  dispatch:
    CompositeImplicitAutograd: both
    MPS: both_mps

- func: empty(Tensor self) -> Tensor
  dispatch: {}
"""


def test_declarations_follow_the_dispatcher() -> None:
    found = {row.name: (row.kind, row.via, row.decomposes) for row in declarations.declared(YAML)}
    assert found == {
        "plain": ("i", "", True),
        "kernel": ("m", "", False),
        "handed.out": ("m", "", False),
        "handed": ("d", "handed.out", False),
        "lost.out": ("n", "", False),
        "lost": ("n", "lost.out", False),
        "composite": ("e", "", False),
        "both": ("m", "", True),
        "empty": ("n", "", False),
        "kernel.out": ("e", "kernel", False),
    }


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('_lib.impl("a.out", f, "MPS")\n_lib.impl("b", g, "CPU")', ["a.out"]),
        ('lib = torch.library.Library("aten", "IMPL", "MPS")\nlib.impl("aten::c.out", f)\nother.impl("d", f)', ["c.out"]),
        ("x = 'MPS'", []),
    ],
)
def test_registrations_in_python_are_read_from_source(text: str, names: list[str]) -> None:
    assert list(registrations.in_sources(iter([text]))) == names


def test_the_table_counts_what_each_release_declares() -> None:
    assert list(DECLARED) == list(stored().releases[: len(DECLARED)])
    counts = {release: stored().counts(release) for release in DECLARED}
    assert {release: (counts[release]["m"], counts[release]["d"]) for release in DECLARED} == DECLARED


def test_the_table_has_every_configured_release_of_its_minor(tmp_path: Path) -> None:
    minors = {release.rpartition(".")[0] for release in stored().releases}
    assert minors == {release.rpartition(".")[0] for release in configfile.load(tmp_path).releases}


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("_scaled_dot_product_attention_math_for_mps", "2.5.1"),
        ("_fused_adamw_", "2.5.1"),
        ("_amp_foreach_non_finite_check_and_unscale_", "2.8.0"),
        ("upsample_bicubic2d.out", "2.6.0"),
        ("_linalg_solve_ex.result", "2.7.1"),
        ("linalg_qr", "2.12.1"),
        ("grid_sampler_3d", "2.9.1"),
        ("_embedding_bag", "2.10.0"),
        ("grid_sampler_2d_backward", "2.13.0"),
        ("_ctc_loss", "2.14.1"),
        ("_fft_r2c", "1.13.1"),
        ("searchsorted.Tensor", "2.2.2"),
        ("channel_shuffle", ""),
    ],
)
def test_first_releases_are_those_that_were_measured(name: str, first: str) -> None:
    assert stored().first(name) == first


@pytest.mark.parametrize(
    ("name", "release", "told"),
    [
        ("linalg_qr", "2.11.0", "no (aten::linalg_qr.out)"),
        ("linalg_svd", "2.13.0", "cpu-fallback (always, with a warning)"),
        ("linalg_svd", "2.14.1", "composite (what it needs was not recorded)"),
        ("_linalg_svd", "2.13.0", "no (aten::_linalg_svd.U)"),
        ("_slow_conv2d_forward", "2.15.0", "no (aten::_slow_conv2d_forward is registered and raises)"),
        ("native_group_norm_backward", "2.12.1", "yes (registered in Python)"),
        ("native_group_norm_backward", "2.13.0", "yes"),
        ("linalg_lu_solve", "2.11.0", "yes (registered in Python)"),
        ("_fused_rms_norm", "2.4.1", "unknown (that release has no such operator)"),
    ],
)
def test_answers(name: str, release: str, told: str) -> None:
    assert str(answer(stored(), name, release)) == told


def test_a_composite_is_as_good_as_what_it_calls() -> None:
    needs = {"linalg_svdvals": Needs(("_linalg_svd",))}
    assert str(answer(stored(), "linalg_svdvals", "2.13.0", needs)) == "no (calls aten::_linalg_svd.U)"
    assert str(answer(stored(), "linalg_svdvals", "2.15.0", needs)) == "composite (needs _linalg_svd)"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("linalg_qr", "linalg_qr"),
        ("torch.linalg.qr", "linalg_qr"),
        ("aten::linalg_qr.out", "linalg_qr.out"),
        ("F.embedding_bag", "embedding_bag"),
        ("torch.fft.rfft", "fft_rfft"),
        ("Tensor.addcdiv_", "addcdiv_"),
    ],
)
def test_an_operator_has_many_names(text: str, first: str) -> None:
    assert operators.overloads(stored(), text)[0] == first


def test_a_misspelt_operator_has_close_matches() -> None:
    with pytest.raises(ConfigError, match=r"close: .*linalg_qr"):
        operators.overloads(stored(), "linalg_qrr")


def test_an_operator_is_told_in_spans() -> None:
    told, runs = operators.told(stored(), "linalg_qr", ["2.11.0", "2.12.1", "2.13.0"], "float32", "26")
    assert "    2.12.1 .. 2.13.0   yes  [registered]" in told
    assert "    2.11.0             no (aten::linalg_qr.out)  [registered]" in told
    assert not runs
    assert operators.told(stored(), "linalg_qr", ["2.13.0"], "float32", "26")[1]


@pytest.mark.parametrize(
    ("dtype", "macos", "word"),
    [("float64", "26", "dtype-no"), ("complex64", "26", "yes"), ("complex64", "13", "os-too-old"), ("float32", "12", "os-too-old")],
)
def test_dtype_and_macos_come_before_any_kernel(dtype: str, macos: str, word: str) -> None:
    told, runs = operators.told(stored(), "mul", ["2.8.0"], dtype, macos)
    assert any(f" {word}" in line for line in told)
    assert runs == (word == "yes")


def test_hazards_are_read_and_name_their_source() -> None:
    for hazard in hazards.known():
        assert hazard.effect in hazards.EFFECTS
        assert hazard.source
        assert hazard.text
        assert hazard.fix in ("", "unknown")
    flags = {hazard.flag for hazard in hazards.known()} - {""}
    text = (ROOT / "conformance" / "instruments" / "flags.py").read_text(encoding="utf-8")
    assert [flag for flag in sorted(flags) if f'"{flag}"' not in text] == []


# ---- audits of recordings


def _seen(op: str, **fields: Any) -> dict[str, Any]:
    given = {
        "op": op,
        "phase": "forward",
        "inside": [],
        "site": "/p/net.py:3",
        "source": "y = f(x)",
        "count": 1,
        "dtypes": ["float32"],
        "flags": {},
    }
    return {**given, **fields}


def _audit(*seen: dict[str, Any], releases: tuple[str, ...] = ("2.8.0", "2.15.0"), **options: Any) -> audits.Audit:
    recording = {"torch": "2.15.0+cpu", "seen": list(seen), "dispatcher": {"CUDA": {}, "Meta": {"mm": "m", "x": "n"}}}
    return audits.of({"2.15.0": recording}, stored(), releases, subject="net", **options)


def test_a_missing_kernel_is_named_with_the_line() -> None:
    audit = _audit(_seen("linalg_qr"), _seen("mm"))
    assert [row.op for row in audit.stopping("2.8.0")] == ["linalg_qr"]
    assert audit.stopping("2.15.0") == []
    told = "\n".join(page.lines(audit, Path("/p")))
    assert "forward: net.py:3: y = f(x)" in told
    assert "no (aten::linalg_qr.out): 2.8.0" in told
    assert "recorded with torch 2.15.0+cpu, looked up for 2 releases, 2.8.0 .. 2.15.0" in told
    assert audit.exit_code == 1


def test_what_a_kernel_stands_before_is_not_reached() -> None:
    inner = _seen("_linalg_svd", inside=["linalg_svd"])
    assert _audit(_seen("linalg_svd"), inner, releases=("2.13.0",)).exit_code == 0
    assert [row.op for row in _audit(inner, releases=("2.13.0",)).rows.values()] == []
    assert [row.op for row in _audit(_seen("_linalg_svd"), releases=("2.13.0",)).stopping("2.13.0")] == ["_linalg_svd"]


def test_a_composite_whose_parts_were_recorded_stands_back() -> None:
    audit = _audit(_seen("zeros_like"), _seen("zero_", inside=["zeros_like"]))
    assert list(audit.rows) == ["zero_"]
    assert audit.exit_code == 0


def test_what_an_operator_that_a_release_has_not_would_call_is_unknown_there() -> None:
    """`_safe_softmax` came with 2.5: 2.3 takes another way, and whether that lacks a kernel was not recorded."""
    audit = _audit(_seen("isneginf", inside=["_safe_softmax"]), releases=("2.3.1", "2.5.1"))
    assert str(audit.rows["isneginf"].answers["2.3.1"]) == "unknown (called by _safe_softmax, which that release has not)"
    assert [row.op for row in audit.stopping("2.5.1")] == ["isneginf"]
    assert audit.stopping("2.3.1") == []


def test_a_convolution_is_the_devices_own() -> None:
    assert _audit(_seen("convolution"), _seen("convolution_backward")).exit_code == 0


@pytest.mark.parametrize(
    ("seen", "release", "macos", "stops", "silent"),
    [
        (_seen("mul.Tensor", flags={"float64": ["takes float64", "/p/net.py:9"]}), "2.15.0", "26", True, False),
        (_seen("_adaptive_avg_pool2d", flags={"uneven_pool": ["[4, 4] to [3, 3]", ""]}), "2.8.0", "26", True, False),
        (_seen("addcdiv_", flags={"inplace_noncontiguous": ["", ""]}), "2.3.1", "26", False, True),
        (_seen("addcdiv_", flags={"inplace_noncontiguous": ["", ""]}), "2.8.0", "26", False, False),
        (_seen("uniform_", flags={"inplace_noncontiguous": ["", ""]}), "2.8.0", "26", False, False),
        (_seen("uniform_", flags={"inplace_noncontiguous": ["", ""]}), "2.8.0", "14", False, True),
        (_seen("mm", dtypes=["bfloat16"]), "2.2.2", "26", True, False),
        (_seen("mm", dtypes=["bfloat16"]), "2.8.0", "26", False, False),
        (_seen("argmax"), "2.8.0", "26", False, False),
    ],
)
def test_known_faults_hold_for_calls_releases_and_macos(seen: dict[str, Any], release: str, macos: str, stops: bool, silent: bool) -> None:
    audit = _audit(seen, releases=(release,), macos=macos)
    assert bool(audit.stopping(release)) == stops
    assert bool(audit.silent(release)) == silent
    assert audit.exit_code == int(stops or silent)


def test_an_old_macos_starts_no_new_release() -> None:
    audit = _audit(_seen("mm"), macos="14.5")
    assert audit.refused == {"2.15.0": "os-too-old: torch 2.15.0 wants macOS 15.0 for MPS"}
    assert audit.exit_code == 1


def test_other_devices_are_answered_by_the_dispatcher() -> None:
    assert _audit(_seen("mm"), device="meta").exit_code == 0
    assert _audit(_seen("x"), device="meta").exit_code == 1


def test_a_build_without_the_backend_gives_no_answer() -> None:
    audit = _audit(_seen("mm"), device="cuda", releases=("2.15.0",))
    assert (audit.exit_code, audit.rows) == (1, {})
    assert "  2.15.0   no answer: torch 2.15.0+cpu, which recorded, has no cuda backend" in page.lines(audit, Path("/p"))


def test_why_the_cpu_was_taken_for_meta_is_told() -> None:
    recording = {"torch": "2.15.0", "seen": [_seen("mm")], "dispatcher": {}, "refused": "NotImplementedError: no numbers"}
    audit = audits.of({"2.15.0": recording}, stored(), ("2.15.0",))
    assert "recorded on the CPU, since on meta: NotImplementedError: no numbers" in page.lines(audit, Path("/p"))


def test_data_say_word_detail_and_source_apart() -> None:
    data = page.as_json(_audit(_seen("linalg_qr")))
    assert data["rows"][0]["answers"]["2.8.0"] == {"word": "no", "detail": "aten::linalg_qr.out", "source": "registered"}
    assert data["stops"] == {"2.8.0": ["linalg_qr"], "2.15.0": []}


def test_the_installed_releases_own_rows_win() -> None:
    table = Table(("1.0", "2.0"), {"plain": "nn", "kernel": "nn", "both": "nf", "lost": "np"})
    for release in ("2.0", "2.1"):
        rows = with_installed(table, release, YAML)
        assert [rows.letter(name, release) for name in ("plain", "kernel", "both", "lost", "handed")] == ["i", "m", "m", "p", "d"]
        assert rows.letter("kernel", "1.0") == "n"


# ---- the command, and wheels


def test_the_command_takes_a_subject_or_an_operator(tmp_path: Path) -> None:
    done = run_conformance(tmp_path, "audit")
    assert (done.returncode, "one of them" in done.stderr) == (2, True)
    done = run_conformance(tmp_path, "audit", "--op", "linalg_qr", "--torch", ">=2.12")
    assert (done.returncode, done.stdout.count("yes  [registered]")) == (0, 1)


def test_a_wheel_on_disk_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "torch.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(declarations.MEMBER, YAML)
    with wheels.opened(path.as_uri()) as wheel:
        assert wheel.read(declarations.MEMBER).decode() == YAML


@pytest.mark.slow
@pytest.mark.parametrize(("release", "python"), [("1.13.1", "3.10"), ("2.4.1", "3.11"), ("2.8.0", "3.11")])
def test_the_library_registers_what_is_declared_and_what_the_table_has_by_hand(release: str, python: str, tmp_path: Path) -> None:
    try:
        with wheels.opened(wheels.find(release, python, r"macosx.*arm64")) as wheel:
            text = wheel.read(declarations.MEMBER).decode()
            library = Library(Path(wheel.extract(MEMBER, tmp_path)))
    except wheels.UnreachableError as error:
        pytest.skip(str(error))
    registered = {each.name for each in library.registered()}
    library.close()
    declared = {row.name for row in declarations.declared(text) if row.kind in "md"}
    assert len(declared) == sum(DECLARED[release])
    assert declared - registered == set()
    by_hand = {name for name in registered - declared if stored().letter(name, release) in "fs"}
    assert registered - declared == by_hand
    assert all(stored().letter(name, release) in "mdp" for name in declared)
