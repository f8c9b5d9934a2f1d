"""torch-mlir's passes, each pipeline in a process of its own: the very command that the error can be reproduced with."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.incell.deaths import ChildDeathError
from conformance.instruments import children
from conformance.instruments.lowering.blame import Frame, innermost

#: To the torch dialect's backend form: value semantics, shapes, decomposed ops. By route.
TO_BACKEND = {
    # matmul of rank 3 is not decomposed, and the contract refuses it where sizes are open: linalg takes it as it is
    "script": "torch-function-to-torch-backend-pipeline{backend-legal-ops=aten.matmul}",
    "export": "torchdynamo-export-to-torch-backend-pipeline",
}
TO_LINALG = "torch-backend-to-linalg-on-tensors-backend-pipeline"

#: One pipeline over one program. Small programs take 0.1 s, OPT with 12 layers 2 s.
LIMIT = children.Limit(seconds=10.0, megabytes=4_000)

#: What brings each compiler.
_PACKAGES = {"torch-mlir-opt": "torch-mlir", "iree-compile": "iree-base-compiler"}
_ERROR = re.compile(
    r"^(?P<file>\S[^:\n]*|<unknown>):(?P<line>\d+):\d+: error: (?P<message>.*)$|^(?:loc\(\S+\)|<unknown>:0): error: (?P<bare>.*)$"
)
_CALLED = re.compile(r"^(?P<file>\S[^:\n]*):(?P<line>\d+):\d+: note: called from$")
_OP = re.compile(r"'(?P<name>\w+(?:\.\w+)+)'|(?P<operator>torch\.operator)")
_CURRENT = re.compile(r'note: see current operation: (?:%\S+ = )?"?(?P<name>[\w.]+)"?(?:\s*"(?P<operator>[\w.]+)")?(?P<rest>.*)$')


@dataclass(frozen=True)
class Complaint:
    """One error of a compiler: its words, the op and its types, and the Python stack of the op, the innermost frame first."""

    message: str
    op: str
    types: str = ""
    frames: tuple[Frame, ...] = ()

    @property
    def blame(self) -> dict[str, Any] | None:
        """The line of the user's code, as records have it."""
        return innermost(self.frames)

    def __str__(self) -> str:
        return f"{self.op}: {self.message}" if self.op and self.op not in self.message else self.message


def reproduction(command: Sequence[str]) -> str:
    """What a shell needs to run `command` beside the file that it reads: its package, in this version, then itself."""
    if not command:
        return ""
    package = _PACKAGES[command[0]]
    return f"pip install {package}=={importlib.metadata.version(package)}\n{shlex.join(command)}\n"


class LoweringError(Exception):
    """A compiler refused a program. `complaints` are its errors, `program` the text, `reproduction` shows the first beside it."""

    def __init__(self, what: str, complaints: Sequence[Complaint], program: str = "", command: Sequence[str] = ()) -> None:
        self.complaints = tuple(complaints)
        self.program, self.reproduction = program, reproduction(command)
        self.blame = next((each.blame for each in self.complaints if each.blame is not None), None)
        super().__init__(f"{what}: {self.complaints[0] if self.complaints else 'it gave no reason'}")


class CompilerDeathError(ChildDeathError):
    """A compiler died, or did not end, on `program`; `reproduction` shows it beside the program."""

    def __init__(self, death: ChildDeathError, program: str, command: Sequence[str]) -> None:
        super().__init__(death.verdict, str(death), death.signal)
        self.program, self.reproduction = program, reproduction(command)


@functools.cache
def optimizer() -> str:
    """The path of torch-mlir-opt. The wheel's script of that name starts Python first, so it is looked up beside the library."""
    spec = importlib.util.find_spec("torch_mlir")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("needs torch-mlir, which is not installed")
    return str(Path(next(iter(spec.submodule_search_locations))) / "_mlir_libs" / "torch-mlir-opt")


@dataclass(frozen=True)
class Passes:
    """Runs pipelines on files in `folder`."""

    folder: Path
    limit: children.Limit = field(default=LIMIT)

    def run(self, asm: str, pipeline: str, what: str, *options: str) -> str:
        """`asm` after `pipeline`, with locations. Raises LoweringError with every error of that run, ChildDeathError when it dies."""
        source, result = self.folder / "in.mlir", self.folder / "out.mlir"
        source.write_text(asm, encoding="utf-8")
        arguments = [f"-pass-pipeline=builtin.module({pipeline})", "-mlir-print-debuginfo", "-mlir-disable-threading"]
        command = ["torch-mlir-opt", "program.mlir", arguments[0]]
        try:
            ended = children.run([optimizer(), str(source), *arguments, *options, "-o", str(result)], self.limit, what)
        except ChildDeathError as death:
            raise CompilerDeathError(death, asm, command) from None
        if ended.code:
            raise LoweringError(f"{what} failed", complaints(ended.err), asm, command)
        return result.read_text(encoding="utf-8")


def complaints(err: str) -> list[Complaint]:
    """The errors in what an MLIR tool wrote, in order; notes are used for the stack and the op, and are no errors."""
    found: list[dict[str, Any]] = []
    for line in err.splitlines():
        error, called, current = _ERROR.match(line), _CALLED.match(line), _CURRENT.search(line)
        if error is not None:
            frames = [(error["file"], int(error["line"]), "")] if error["file"] and error["file"] != "<unknown>" else []
            found.append({"message": error["message"] or error["bare"], "frames": frames, "op": "", "types": ""})
        elif found and called is not None:
            found[-1]["frames"].append((called["file"], int(called["line"]), ""))
        elif found and current is not None and not found[-1]["op"]:
            found[-1]["op"] = current["operator"] or current["name"]
            found[-1]["types"] = _types(current["rest"])
    return [_complaint(each) for each in found] or [Complaint(children.last_words(err), "")]


def _complaint(found: dict[str, Any]) -> Complaint:
    """The op is the one that the message names; `torch.operator` goes by the name that it carries."""
    message, frames = found["message"].partition(" loc(")[0], tuple(found["frames"])
    operator = re.search(r'name = "([\w.]+)"', found["message"])
    named = _OP.search(message)
    op = operator[1] if operator is not None else named["name"] if named is not None and named["name"] else found["op"]
    if operator is not None:
        message = f"the torch dialect has no op {op}"
    return Complaint(message, op, found["types"], frames)


def _types(rest: str) -> str:
    """The types of an op as it was printed, without its location: `(!torch.tensor, !torch.int) -> !torch.tensor`."""
    told = re.search(r": (\(.*?\) -> .*?|!torch\S.*? -> .*?)(?: loc\(.*)?$", rest)
    return told[1][:300] if told is not None else ""
