"""The probe: whether a device does real ops right, asked in a process of its own, which may hang or die of it.

Run as `python -m conformance.incell.probe DEVICE LOG`: a line of JSON before each step, and one for the end.
`is_available()` alone is no proof: macOS 14 runners say yes and fail at the first allocation (actions/runner-images#9918), later ones
pass a small op and hang in a real one, and macOS 26 virtual machines give wrong numbers in a linear layer with a bias
(actions/runner-images#14380, pytorch/pytorch#188438).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.incell.devices import Backend, backend
from conformance.incell.parent import die_with_parent

#: What a probe can come to. `absent`: torch itself says that the device is not there.
USABLE, ABSENT, OUT_OF_MEMORY, HANG, WRONG, RAISES, CRASH = "usable", "absent", "out-of-memory", "hang", "wrong", "raises", "crash"
#: Part of the largest expected number by which a result may be off: TF32 and a TPU's bfloat16 products are within, a lost bias is not.
_TOLERANCE = 0.02
_POLL_S = 0.05
#: How many times the limit the imports may take: they say how busy the machine is, and nothing of the device.
_IMPORTING = 2.5
_OUT_OF_MEMORY = ("out of memory", "OutOfMemory", "invalid buffer size", "RESOURCE_EXHAUSTED")


@dataclass(frozen=True)
class Answer:
    """What came of a probe: its outcome, the step it ended in, what was said there, and the device's name where it works."""

    outcome: str
    step: str = ""
    detail: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.outcome == USABLE:
            return "ok"
        return f"{self.outcome.replace('-', ' ')} at {self.step or 'the start'}" + (f": {self.detail}" if self.detail else "")


def _waves(*shape: int) -> Any:
    """Numbers between -1 and 1 that no generator makes: made on the CPU, equal everywhere."""
    torch = sys.modules["torch"]
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count, dtype=torch.float32).mul_(0.37).sin_().reshape(shape)


def _allocate(device: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.zeros(16 << 20, device=device).add_(1)[-4:]  # 64 MB


def _multiply(device: Any) -> Any:
    return _waves(256, 512).to(device) @ _waves(512, 384).to(device)


def _convolve(device: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.nn.functional.conv2d(_waves(4, 8, 32, 32).to(device), _waves(16, 8, 3, 3).to(device), padding=1)


def _linear(device: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.nn.functional.linear(_waves(4, 64, 128).to(device), _waves(96, 128).to(device), 8 * _waves(96).to(device))


#: The step before those on the device, and from which line of the log on the device is at work.
IMPORT, _DEVICE_FROM = "import", 2
STEPS: dict[str, Callable[[Any], Any]] = {"allocate": _allocate, "mm": _multiply, "conv": _convolve, "linear with bias": _linear}


def steps(where: Backend, tell: Callable[[str], None]) -> Answer:
    """Run each step on the device and on the CPU, and compare; `tell` hears of each step before it begins."""
    step = IMPORT
    try:
        tell(step)
        import torch  # noqa: F401  the steps take it from sys.modules

        if not where.is_there():
            return Answer(ABSENT, step, f"torch says that no {where.name} is there")
        device = where.activate()
        for step, run in STEPS.items():
            tell(step)
            result = run(device)
            where.synchronize()
            off = _off(result, run("cpu"), where.name)
            if off:
                return Answer(WRONG, step, off)
        return Answer(USABLE, name=where.label())
    except ImportError as error:
        return Answer(ABSENT, step, str(error))
    except Exception as error:
        said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return Answer(OUT_OF_MEMORY if any(word in said for word in _OUT_OF_MEMORY) else RAISES, step, said)


def _off(result: Any, expected: Any, device: str) -> str:
    """How a result differs from what the CPU gives, empty where it is right."""
    if result.shape != expected.shape or result.dtype != expected.dtype or result.device.type != device:
        return f"a {result.dtype} tensor of shape {tuple(result.shape)} on {result.device.type}"
    if device == "meta":
        return ""
    error = float((result.cpu() - expected).abs().max() / expected.abs().max())
    return "" if error <= _TOLERANCE else f"off by {error:.2g} of the largest number"


def probe(name: str, limit_s: float, command: Sequence[str] = (), heard: Callable[[], None] = lambda: None) -> Answer:
    """Probe a device in a process of its own. A step that does not end within `limit_s` seconds makes it a `hang`.

    `heard` is called at each step.
    `command` starts another program that tells of its steps as this one does, with the log's path as its last argument.
    """
    handle, log = tempfile.mkstemp(prefix="probe-")
    os.close(handle)
    command = [*(command or (sys.executable, "-m", "conformance.incell.probe", name)), log]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        late = not _wait(child, log, limit_s, heard)
        told = _read(log)
    finally:
        if child.poll() is None:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver does not even die
                child.wait(2)
        os.unlink(log)
    step = next((str(line["step"]) for line in reversed(told) if "step" in line), "")
    if told and "outcome" in told[-1]:
        return Answer(**told[-1])
    if late and step in ("", IMPORT):
        return Answer(RAISES, step, "its modules were not imported in time: the machine is busy, or they wait for something")
    if late:
        return Answer(HANG, step, "did not end in time")
    return Answer(CRASH, step, f"the process ended with {_named(child.returncode)}")


def _wait(child: subprocess.Popen[bytes], log: str, limit_s: float, heard: Callable[[], None]) -> bool:
    """Wait for the end; False when nothing new was told for `limit_s` seconds. The clock starts again with each step."""
    told, since = 0, time.monotonic()
    while child.poll() is None:
        now = len(_read(log))
        if now != told:
            told, since = now, time.monotonic()
            heard()
        if time.monotonic() - since > limit_s * (_IMPORTING if told < _DEVICE_FROM else 1.0):
            return False
        time.sleep(_POLL_S)
    return True


def _named(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _read(log: str) -> list[dict[str, Any]]:
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def main() -> None:
    """Probe the device named by the first argument, and tell of it in the file named by the last."""
    die_with_parent()
    name, path = sys.argv[-2:]
    with open(path, "a", buffering=1, encoding="utf-8") as log:
        answer = steps(backend(name), lambda step: print(json.dumps({"step": step}), file=log))
        print(json.dumps(vars(answer)), file=log)


if __name__ == "__main__":
    main()
