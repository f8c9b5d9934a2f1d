"""Running lowered programs on many inputs, in processes that may die: linalg by the reference backend, the torch dialect by IREE."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from conformance.incell.deaths import ChildDeathError
from conformance.incell.verdicts import Verdict
from conformance.instruments import children
from conformance.instruments.lowering.blame import innermost
from conformance.instruments.lowering.passes import CompilerDeathError, LoweringError, complaints
from conformance.instruments.lowering.program import Program

#: Compiling and running on all variations. OPT with 12 layers takes 30 s in the reference backend.
LIMIT = children.Limit(seconds=60.0, megabytes=8_000)

#: How the reference backend's programs say that a check of theirs failed, and the place in what follows.
_CHECK = "Runtime op verification failed"
_PLACE = re.compile(r'"(/[^"]+)":(\d+):')

Answers = dict[str, list[torch.Tensor]]


@dataclass(frozen=True)
class Compiled:
    """What a backend takes: a file, and for the reference backend rank and element of each result."""

    file: Path
    results: Sequence[tuple[int, str]] = ()


class ExecutionError(Exception):
    """A compiled program refused inputs; the message is the runtime's. `answers` are those that it gave to others."""

    def __init__(self, message: str, stage: str, answers: Answers | None = None, blame: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.stage, self.answers, self.blame = stage, answers or {}, blame


class ExecutionDeathError(ChildDeathError):
    """A program, or what compiled it, took its process along; `stage` says which."""

    def __init__(self, verdict: Verdict, message: str, stage: str, signal: str | None = None) -> None:
        super().__init__(verdict, message, signal)
        self.stage = stage


def compile_for_reference(asm: str, folder: Path) -> Compiled:
    """The program of linalg on tensors, on disk: the reference backend compiles and runs it in one process."""
    compiled = folder / "linalg.mlir"
    compiled.write_text(asm, encoding="utf-8")
    return Compiled(compiled, _results(asm))


def _results(asm: str) -> list[tuple[int, str]]:
    """Rank and element of each result of `main`. Raises ExecutionError for what the reference backend cannot hand back."""
    signature = re.search(r"func\.func @main\(.*\) -> \(?(.*?)\)?(?: attributes .*)? \{$", asm, re.MULTILINE)
    kinds = re.findall(r"tensor<((?:[?\d]+x)*)([a-z]\w*(?:<\w+>)?)>", signature[1]) if signature is not None else []
    if not kinds:
        raise ExecutionError("the program has no function main that answers with tensors", "compile")
    return [(sizes.count("x"), element) for sizes, element in kinds]


def compile_for_iree(program: Program, folder: Path, limit: children.Limit = LIMIT) -> Compiled:
    """IREE's module for this machine's CPU, from the torch dialect. Raises LoweringError, ChildDeathError."""
    source, module = folder / "iree.mlir", folder / "iree.vmfb"
    source.write_text(program.asm, encoding="utf-8")
    options = ["--iree-input-type=torch", "--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"]
    command = ["iree-compile", "program.mlir", *options]
    try:
        ended = children.run([_iree_compile(), str(source), *options, "-o", str(module)], limit, "iree-compile")
    except ChildDeathError as death:
        raise CompilerDeathError(death, program.asm, command) from None
    if ended.code:
        raise LoweringError("iree-compile failed", complaints(ended.err), program.asm, command)
    return Compiled(module)


def _iree_compile() -> str:
    spec = importlib.util.find_spec("iree.compiler")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("needs iree-base-compiler, which is not installed")
    return str(Path(next(iter(spec.submodule_search_locations))) / "_mlir_libs" / "iree-compile")


def run(
    backend: str,
    compiled: Compiled,
    weights: Sequence[torch.Tensor],
    inputs: Mapping[str, Sequence[torch.Tensor]],
    folder: Path,
    limit: children.Limit = LIMIT,
) -> Answers:
    """The answers by variation, in the order of the program's results. `backend` is `reference` or `iree`.

    Raises ExecutionDeathError when the program kills its process, ExecutionError when the runtime refuses inputs.
    """
    import numpy as np

    arrays = {f"{name}.{number}": _array(each) for name, given in inputs.items() for number, each in enumerate(given)}
    arrays.update({f"weights.{number}": _array(each) for number, each in enumerate(weights)})
    np.savez(folder / "inputs.npz", **arrays)
    log = folder / "run.log"
    files = {"program": str(compiled.file), "inputs": str(folder / "inputs.npz"), "outputs": str(folder / "outputs.npz"), "log": str(log)}
    bounds = {"seconds": limit.seconds, "patience": limit.seconds * children.PATIENCE, "megabytes": limit.megabytes}
    ended = _executor().ask({"backend": backend, "results": compiled.results, **files, **bounds})
    told = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    steps = [line for line in told.splitlines() if line.startswith(("compile", "load", "run "))]
    where = f"the {backend} backend at {steps[-1]!r}" if steps else f"the {backend} backend"
    stage = "run" if steps and steps[-1].startswith("run") else "compile"
    if ended["late"] or -ended["code"] == signal.SIGXCPU:
        raise ExecutionDeathError(Verdict.TIMEOUT, f"{where} did not end within {limit.seconds:g} s of processor time", stage)
    if ended["code"] < 0 and _CHECK in told:
        blame = innermost([(file, int(line), "") for file, line in _PLACE.findall(told.partition(_CHECK)[2])])
        raise ExecutionError(f"{where} stopped at a check: {_checked(told)}", "run", blame=blame)
    if ended["code"] < 0:
        name = signal.Signals(-ended["code"]).name
        raise ExecutionDeathError(Verdict.CRASH, f"{where} died of {name}: {children.last_words(told)}", stage, name)
    refusals = [line.partition(" ")[2] for line in told.splitlines() if line.startswith("refused ")]
    if ended["code"] and not refusals:
        raise ExecutionError(f"{where}: {children.last_words(told)}", stage)
    with np.load(folder / "outputs.npz") as given:
        answers = _by_variation({name: torch.from_numpy(given[name]) for name in given.files})
    if refusals:
        raise ExecutionError(f"the {backend} backend refuses {refusals[0]}", "run", answers)
    return answers


def _checked(told: str) -> str:
    """What a check in the program said of the access that it stopped."""
    lines = [line.strip() for line in told.partition(_CHECK)[2].splitlines()]
    return next((line.strip("^ ") for line in lines if line.startswith("^")), "a check at run time failed")


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
