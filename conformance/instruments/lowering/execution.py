"""Running lowered programs on many inputs, in processes that may die: torch-mlir's linalg by the reference backend, the torch dialect by IREE."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from conformance.incell.deaths import ChildDeathError
from conformance.incell.verdicts import Verdict
from conformance.instruments import children
from conformance.instruments.lowering.passes import LoweringError, complaints
from conformance.instruments.lowering.program import Program

#: Compiling and running on all variations. OPT with 12 layers takes 30 s in the reference backend.
LIMIT = children.Limit(seconds=60.0, megabytes=8_000)

Answers = dict[str, list[torch.Tensor]]


class ExecutionError(Exception):
    """A compiled program refused its inputs; the message is the runtime's."""


def compile_for_iree(program: Program, folder: Path, limit: children.Limit = LIMIT) -> Path:
    """IREE's module for this machine's CPU, from the torch dialect. Raises LoweringError, ChildDeathError."""
    source, module = folder / "iree.mlir", folder / "iree.vmfb"
    source.write_text(program.asm, encoding="utf-8")
    options = ["--iree-input-type=torch", "--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"]
    ended = children.run([_iree_compile(), str(source), *options, "-o", str(module)], limit, "iree-compile")
    if ended.code:
        raise LoweringError("iree-compile failed", complaints(ended.err), program.asm, ["iree-compile", "program.mlir", *options])
    return module


def _iree_compile() -> str:
    spec = importlib.util.find_spec("iree.compiler")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("needs iree-base-compiler, which is not installed")
    return str(Path(next(iter(spec.submodule_search_locations))) / "_mlir_libs" / "iree-compile")


def run(
    backend: str,
    compiled: Path,
    weights: Sequence[torch.Tensor],
    inputs: Mapping[str, Sequence[torch.Tensor]],
    folder: Path,
    limit: children.Limit = LIMIT,
) -> Answers:
    """The answers by variation, in the order of the program's results. `backend` is `reference` (a linalg text) or `iree` (a module).

    Raises ChildDeathError when the program kills its process, ExecutionError when the runtime refuses inputs.
    """
    import numpy as np

    arrays = {f"{name}.{number}": _array(each) for name, given in inputs.items() for number, each in enumerate(given)}
    arrays.update({f"weights.{number}": _array(each) for number, each in enumerate(weights)})
    np.savez(folder / "inputs.npz", **arrays)
    log = folder / "run.log"
    files = {"program": str(compiled), "inputs": str(folder / "inputs.npz"), "outputs": str(folder / "outputs.npz"), "log": str(log)}
    ended = _executor().ask({"backend": backend, **files, "seconds": limit.seconds, "megabytes": limit.megabytes})
    _check(ended, log.read_text(encoding="utf-8", errors="replace") if log.exists() else "", backend, limit)
    with np.load(folder / "outputs.npz") as given:
        return _by_variation({name: torch.from_numpy(given[name]) for name in given.files})


def _check(ended: Mapping[str, Any], log: str, backend: str, limit: children.Limit) -> None:
    steps = [line for line in log.splitlines() if line.startswith(("compile", "load", "run "))]
    where = f"the {backend} backend at {steps[-1]!r}" if steps else f"the {backend} backend"
    if ended["late"]:
        raise ChildDeathError(Verdict.TIMEOUT, f"{where} did not end within {limit.seconds:g} s")
    if ended["code"] < 0:
        name = signal.Signals(-ended["code"]).name
        raise ChildDeathError(Verdict.CRASH, f"{where} died of {name}: {children.last_words(log)}", name)
    if ended["code"]:
        raise ExecutionError(f"{where}: {children.last_words(log)}")


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().contiguous().numpy()


def _by_variation(answers: Mapping[str, torch.Tensor]) -> Answers:
    found: Answers = {}
    for name, answer in answers.items():
        found.setdefault(name.rpartition(".")[0], []).append(answer)
    return found


class _Executor:
    """The executor's process, started when first asked and again when it is gone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What became of one request: `code`, `late`."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the executor of compiled programs ended with exit code {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            program = Path(__file__).with_name("executor.py")
            self._process = subprocess.Popen(
                [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            atexit.register(self.end)
        return self._process

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
            self._process.wait()


_EXECUTORS: dict[int, _Executor] = {}


def _executor() -> _Executor:
    """This process's own: a fork of the case's process must not share its pipes."""
    return _EXECUTORS.setdefault(os.getpid(), _Executor())
