"""What confounds a verdict, read inside the cell: build, Python, OS, CPU level, threads, the device and whether it works."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.incell.devices import backend
from conformance.incell.journal import Journal
from conformance.incell.machine import machine
from conformance.incell.probe import USABLE, Answer, probe, steps
from conformance.incell.scrub import Scrubber, private_names, process_roots
from conformance.incell.settings import Settings

#: Variables that change what torch does; only these are kept, and their values are scrubbed.
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "KMP_AFFINITY",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "PJRT_DEVICE",
    "PYTHONHASHSEED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "TORCHDYNAMO_DISABLE",
    "TORCH_COMPILE_DISABLE",
    "XLA_FLAGS",
)


#: Seconds that each step of the probe of a device may take.
_PROBE_S = 60.0


def fingerprint(settings: Settings) -> dict[str, Any]:
    """environment.json without what only the supervisor knows. `device.probe` is `ok` or what went wrong, `device.outcome` its kind."""
    found: dict[str, Any] = {
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "platform": _platform(),
        "machine": machine(),
        "cpu": {"model": _cpu_model(), "flags": _cpu_flags(), "capability": None, "cores": os.cpu_count()},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "freeze": sorted({f"{dist.metadata['Name']}=={dist.version}" for dist in importlib.metadata.distributions()}, key=str.lower),
    }
    import torch

    found["torch"] = {
        "version": torch.__version__,
        "git_version": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "debug": bool(torch.version.debug),
    }
    capability = getattr(torch.backends.cpu, "get_cpu_capability", None) if hasattr(torch.backends, "cpu") else None
    found["cpu"]["capability"] = capability() if capability is not None else None
    found["threads"] = {"intraop": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    heard = functools.partial(Journal(settings.journal).event, "probe") if settings.journal else lambda: None
    found["device"] = _device(settings.device, min(_PROBE_S, settings.timeout_s), heard)
    return found


def _device(name: str, limit_s: float, heard: Callable[[], None]) -> dict[str, Any]:
    """What the probe came to; `heard` is called at each of its steps, so that the supervisor knows that it goes on."""
    heard()
    answer = _answer(name, limit_s, heard)
    described: dict[str, Any] = {"type": name, "name": answer.name or None, "driver": None, "probe": str(answer), "outcome": answer.outcome}
    if name == "mps":
        described["cpu_fallback"] = os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "unset")
    if name == "cuda" and answer.outcome == USABLE:
        import torch

        described["capability"] = list(torch.cuda.get_device_capability(0))
        described["driver"] = _nvidia_driver()
    if name == "xla" and answer.outcome == USABLE:
        described["plugin"] = importlib.metadata.version("torch-xla")
    return described


def _answer(name: str, limit_s: float, heard: Callable[[], None]) -> Answer:
    """What the probe came to. The CPU and meta neither hang nor die of four ops: they need no process of their own."""
    return steps(backend(name), lambda step: None) if name in ("cpu", "meta") else probe(name, limit_s, heard=heard)


def _nvidia_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((word for word in text.split() if word[0].isdigit() and "." in word), None)


def _platform() -> dict[str, Any]:
    return {"system": platform.system(), "release": platform.release(), "os": _os_name(), "machine": platform.machine()}


def _os_name() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _cpu_info(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() if key == "model name" else ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _cpu_model() -> str:
    return _cpu_info("model name")


def _cpu_flags() -> list[str]:
    """The vector extensions that decide which kernels run; the other hundred flags say nothing here."""
    telling = ("sse4", "avx", "fma", "f16c", "amx", "neon", "asimd", "sve", "bf16")
    return sorted(flag for flag in _cpu_info("flags").split() if flag.startswith(telling) or "bf16" in flag)


def take(settings: Settings) -> None:
    """Write the fingerprint where the settings want it. Where torch cannot be imported the process ends, its traceback on the console."""
    scrub = Scrubber({**process_roots(), **settings.roots}, [*private_names(), *settings.secrets])
    try:
        found = scrub.tree(fingerprint(settings))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    Path(settings.fingerprint).write_text(json.dumps(found), encoding="utf-8")
