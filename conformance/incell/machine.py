"""The machine under the operating system: model, chip, build of the system, and whether it is a virtual one.

MPS goes wrong on some virtual machines alone (pytorch/pytorch#188438: macOS 26 on GitHub's runners, right on the same build on metal),
so a result must say on which kind it was seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

_SYSCTL = ("hw.model", "hw.memsize", "machdep.cpu.brand_string", "kern.hv_vmm_present")
_DMI = "/sys/class/dmi/id"


def machine() -> dict[str, Any]:
    """`{"model", "chip", "memory_gb", "os_build", "virtual", "hypervisor"}`; None for what could not be read."""
    if sys.platform == "darwin":
        return of_macos(_said("sysctl", *_SYSCTL), _said("sw_vers"))
    dmi = {name: _text(f"{_DMI}/{name}") for name in ("sys_vendor", "product_name")}
    release = _text("/proc/sys/kernel/osrelease")
    return of_linux(dmi, _text("/proc/cpuinfo"), _text("/proc/meminfo"), release, _said("systemd-detect-virt", "--vm"))


def of_macos(sysctl: str, sw_vers: str) -> dict[str, Any]:
    """What `sysctl` (of the names above) and `sw_vers` print, read. `kern.hv_vmm_present` is 1 in a guest."""
    values, versions = _pairs(sysctl), _pairs(sw_vers)
    model, chip = values.get("hw.model"), values.get("machdep.cpu.brand_string")
    named = (model or "").startswith("VirtualMac") or (chip or "").endswith("(Virtual)")
    present = values.get("kern.hv_vmm_present")
    virtual = True if named or present == "1" else False if present == "0" else None
    memory = values.get("hw.memsize", "")
    return {
        "model": model,
        "chip": chip,
        "memory_gb": round(int(memory) / 2**30) if memory.isdigit() else None,
        "os_build": versions.get("BuildVersion"),
        "virtual": virtual,
        "hypervisor": "apple" if named else None,
    }


def of_linux(dmi: Mapping[str, str], cpuinfo: str, meminfo: str, release: str, detected: str) -> dict[str, Any]:
    """What Linux tells: DMI, /proc, and `systemd-detect-virt --vm` where it is installed.

    The CPU's flag `hypervisor` is set in any x86 guest; Arm has none, and is known by DMI or systemd alone.
    """
    cpu = _pairs(cpuinfo)
    detected = detected.strip()
    flagged = "hypervisor" in cpu.get("flags", "").split()
    hypervisor = detected if detected not in ("", "none") else "wsl" if "microsoft" in release.lower() else None
    told = detected == "none" or "flags" in cpu
    memory = _pairs(meminfo).get("MemTotal", "").split()
    return {
        "model": " ".join(part for part in (dmi.get("sys_vendor"), dmi.get("product_name")) if part) or None,
        "chip": cpu.get("model name") or None,
        "memory_gb": round(int(memory[0]) / 2**20) if memory else None,
        "os_build": None,  # platform.release names the kernel
        "virtual": True if flagged or hypervisor else False if told else None,
        "hypervisor": hypervisor,
    }


def _pairs(text: str) -> dict[str, str]:
    """Lines of `name: value`; the first of each name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _said(*command: str) -> str:
    """What a command prints, empty where it is not there; names that `sysctl` does not know cost only themselves."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _text(path: str) -> str:
    try:
        with open(os.fspath(path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
