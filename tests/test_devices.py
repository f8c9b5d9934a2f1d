"""What is read of a machine, what a warning tells of a fallback, what a probe comes to: without torch, on outputs as they are printed."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path

import pytest

from conformance.incell.machine import of_linux, of_macos
from conformance.incell.meters import DispatchMeter, Meter, WarningMeter
from conformance.incell.probe import Answer, probe
from conformance.incell.torchstate import forget_last_error

VIRTUAL = """hw.model: VirtualMac2,1
hw.memsize: 7516192768
machdep.cpu.brand_string: Apple M1 (Virtual)
kern.hv_vmm_present: 1
"""
METAL = """hw.model: Mac16,10
hw.memsize: 17179869184
machdep.cpu.brand_string: Apple M4
kern.hv_vmm_present: 0
"""
SW_VERS = "ProductName:\t\tmacOS\nProductVersion:\t\t15.7.1\nBuildVersion:\t\t24G231\n"
CPUINFO = "processor\t: 0\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu vme {flag}avx2\n\nprocessor\t: 1\nmodel name\t: other\n"
MEMINFO = "MemTotal:       24620688 kB\nMemFree: 1 kB\n"


def test_parsing_of_a_mac_in_a_virtual_machine() -> None:
    assert of_macos(VIRTUAL, SW_VERS) == {
        "model": "VirtualMac2,1",
        "chip": "Apple M1 (Virtual)",
        "memory_gb": 7,
        "os_build": "24G231",
        "virtual": True,
        "hypervisor": "apple",
    }


def test_parsing_of_a_mac_on_metal() -> None:
    found = of_macos(METAL, SW_VERS)
    assert (found["model"], found["chip"], found["virtual"], found["hypervisor"]) == ("Mac16,10", "Apple M4", False, None)


def test_parsing_where_a_mac_says_nothing() -> None:
    assert set(of_macos("", "").values()) == {None}
    assert of_macos("hw.model: MacBookPro18,1\n", "")["virtual"] is None, "an old system has no kern.hv_vmm_present"


@pytest.mark.parametrize(
    ("flag", "detected", "release", "virtual", "hypervisor"),
    [
        ("hypervisor ", "kvm\n", "6.1.0", True, "kvm"),
        ("hypervisor ", "", "6.1.0", True, None),
        ("", "none\n", "6.1.0", False, None),
        ("", "", "6.1.0", False, None),
        ("hypervisor ", "", "5.15.90.1-microsoft-standard-WSL2", True, "wsl"),
    ],
)
def test_parsing_of_linux(flag: str, detected: str, release: str, virtual: bool, hypervisor: str | None) -> None:
    found = of_linux({"sys_vendor": "QEMU", "product_name": "Standard PC"}, CPUINFO.format(flag=flag), MEMINFO, release, detected)
    assert (found["virtual"], found["hypervisor"]) == (virtual, hypervisor)
    assert (found["model"], found["chip"], found["memory_gb"]) == ("QEMU Standard PC", "AMD EPYC 7763", 23)


def test_parsing_of_arm_linux_without_any_word() -> None:
    assert of_linux({}, "processor\t: 0\nFeatures\t: fp asimd\n", "", "6.1.0", "")["virtual"] is None


MPS = (
    "The operator 'aten::{op}' is not currently supported on the MPS backend and will fall back to run on the CPU. "
    "This may have performance implications. (Triggered internally at /x/aten/src/ATen/mps/MPSFallback.mm:13.)"
)


def test_a_fallback_is_named() -> None:
    meter = DispatchMeter("mps")
    meter.saw("aten.add.Tensor", True)
    meter.warned(MPS.format(op="linalg_qr.out"))
    meter.warned(MPS.format(op="col2im"))
    meter.warned("The operator 'aten::dot on the XPU backend is falling back to run on the CPU.")
    meter.warned("The operator 'aten::nothing' is deprecated")
    assert meter.as_record() == {"on": 1, "fallback": ["aten::col2im", "aten::dot", "aten::linalg_qr.out"]}
    assert meter.unexercised() == "fell back to the CPU: aten::col2im, aten::dot, aten::linalg_qr.out"


def test_a_fallback_counts_where_nothing_else_does() -> None:
    meter = WarningMeter()
    assert (meter.as_record(), meter.unexercised()) == (None, "")
    meter.warned(MPS.format(op="col2im"))
    assert meter.as_record() == {"on": None, "fallback": ["aten::col2im"]}
    assert meter.unexercised()


def test_what_ran_elsewhere_is_named_where_nothing_ran_on_the_device() -> None:
    meter = DispatchMeter("cuda")
    for op in ("aten.ones.default", "aten.sum.default", "aten.ones.default"):
        meter.saw(op, False)
    assert meter.unexercised() == "no op ran on the device; elsewhere ran aten.ones.default, aten.sum.default"
    meter.saw("aten.ones.default", True)
    assert (meter.unexercised(), meter.as_record()) == ("", {"on": 1, "fallback": []})
    assert (Meter().unexercised(), Meter().as_record()) == ("", None)


def _tells(tmp_path: Path, body: str) -> list[str]:
    script = tmp_path / "probe.py"
    script.write_text(f"import json, os, sys, time\nlog = open(sys.argv[-1], 'a', buffering=1)\n{body}\n", encoding="utf-8")
    return [sys.executable, str(script)]


def test_a_step_that_does_not_end_is_a_hang(tmp_path: Path) -> None:
    body = "for step in ('import', 'conv'):\n    print(json.dumps({'step': step}), file=log)\ntime.sleep(60)"
    answer = probe("mps", 0.5, _tells(tmp_path, body))
    assert str(answer) == "hang at conv: did not end in time"


def test_a_long_import_says_nothing_of_the_device(tmp_path: Path) -> None:
    heard: list[int] = []
    body = "print(json.dumps({'step': 'import'}), file=log)\ntime.sleep(SECONDS)\nprint(json.dumps({'outcome': 'usable'}), file=log)"
    assert probe("mps", 1.0, _tells(tmp_path, body.replace("SECONDS", "1.5")), heard=lambda: heard.append(1)).outcome == "usable"
    answer = probe("mps", 0.2, _tells(tmp_path, body.replace("SECONDS", "60")))
    assert (answer.outcome, answer.step) == ("raises", "import")
    assert heard


def test_each_step_has_its_own_time(tmp_path: Path) -> None:
    body = "for step in range(4):\n    print(json.dumps({'step': str(step)}), file=log)\n    time.sleep(0.4)\n"
    body += "print(json.dumps({'outcome': 'usable', 'name': 'x'}), file=log)"
    assert probe("mps", 1.2, _tells(tmp_path, body)) == Answer("usable", name="x")


def test_a_death_is_a_crash_at_its_step(tmp_path: Path) -> None:
    answer = probe("mps", 30, _tells(tmp_path, "print(json.dumps({'step': 'mm'}), file=log)\nos.abort()"))
    assert str(answer) == "crash at mm: the process ended with signal 6"
    assert str(probe("mps", 30, _tells(tmp_path, "os._exit(0)"))) == "crash at the start: the process ended with exit code 0"


class OnTheDevice:
    """Stands for a tensor that a failed case holds, in a cycle as an error and its frame make one."""

    def __init__(self) -> None:
        self.itself = self


def test_what_a_failed_case_holds_is_freed() -> None:
    def fail() -> weakref.ref[OnTheDevice]:
        held = OnTheDevice()
        try:
            raise RuntimeError("no lowering")
        except RuntimeError as error:
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__  # as pytest does
        return weakref.ref(held)

    held = fail()
    assert held() is not None
    forget_last_error()
    assert held() is None
    assert not hasattr(sys, "last_value")
