"""Every op that blocks a program, at once: each distinct op alone in a module of its own, lowered by itself.

A compiler stops at the first op that it cannot lower, so a model is ported one error at a time. Here the blocking ops are all named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from conformance.incell.deaths import ChildDeathError
from conformance.instruments.lowering.dialect import context
from conformance.instruments.lowering.narrowing import frames_of
from conformance.instruments.lowering.passes import Complaint, LoweringError, Passes

#: How many ops are tried in one process; a refused one is looked for in halves.
_TOGETHER = 64


def blocking(passes: Passes, asm: str, pipeline: str) -> list[Complaint]:
    """The distinct ops of `asm` (torch dialect, values with shapes) that `pipeline` does not take by themselves, in the program's order."""
    with context() as known:
        from torch_mlir import ir

        module = ir.Module.parse(asm, context=known)
        alone = dict(_alone(op) for op in _ops(module))
    found = _refused(passes, list(alone.items()), pipeline)
    return [_told(error, frames) for error, frames in found]


def _ops(module: Any) -> Iterator[Any]:
    """The program's ops on tensors; constants, lists and sizes come along with what uses them."""
    for function in module.body:
        for op in function.regions[0].blocks[0]:
            if any(str(result.type).startswith("!torch.vtensor") for result in op.operation.results):
                yield op.operation


def _alone(op: Any) -> tuple[str, tuple[Any, ...]]:
    """A function around one op: tensors and numbers are its arguments, constants and lists are made again inside."""
    arguments: list[str] = []
    lines: list[str] = []
    names: dict[Any, str] = {}

    def name_of(value: Any) -> str:
        if value in names:
            return names[value]
        owner = getattr(value.owner, "operation", value.owner)
        made = str(getattr(owner, "name", ""))
        if made.startswith("torch.constant.") or made in ("torch.prim.ListConstruct", "torch.vtensor.literal"):
            emit(owner)
            return names[value]
        names[value] = f"%arg{len(arguments)}"
        arguments.append(f"{names[value]}: {value.type}")
        return names[value]

    def emit(owner: Any) -> None:
        operands = [name_of(operand) for operand in owner.operands]
        results = [f"%v{len(names) + number}" for number in range(len(owner.results))]
        names.update(zip(owner.results, results))
        kinds = (
            f"({', '.join(str(operand.type) for operand in owner.operands)}) -> ({', '.join(str(result.type) for result in owner.results)})"
        )
        attributes = ", ".join(f"{key} = {value}" for key, value in _attributes(owner))
        lines.append(f'{", ".join(results)} = "{owner.name}"({", ".join(operands)}) {{{attributes}}} : {kinds}')

    emit(op)
    results, kinds = [names[result] for result in op.results], [str(result.type) for result in op.results]
    body = "\n    ".join([*lines, f"return {', '.join(results)} : {', '.join(kinds)}"])
    text = f"({', '.join(arguments)}) -> ({', '.join(kinds)}) {{\n    {body}\n  }}"
    return text, tuple(frames_of(op.location))


def _attributes(owner: Any) -> list[tuple[str, Any]]:
    return [(each.name, each.attr) if hasattr(each, "attr") else (each, owner.attributes[each]) for each in owner.attributes]


def _refused(passes: Passes, functions: Sequence[tuple[str, Any]], pipeline: str) -> list[tuple[Exception, Any]]:
    """Which functions do not lower: all together first, then halves of what fails."""
    if not functions:
        return []
    if len(functions) > _TOGETHER:
        return [*_refused(passes, functions[:_TOGETHER], pipeline), *_refused(passes, functions[_TOGETHER:], pipeline)]
    module = "\n".join(f"func.func @f{number}{text}" for number, (text, _) in enumerate(functions))
    try:
        passes.run(f"module {{\n{module}\n}}", pipeline, "the lowering of single ops")
    except (LoweringError, ChildDeathError) as error:
        if len(functions) == 1:
            return [(error, functions[0])]
        half = len(functions) // 2
        return [*_refused(passes, functions[:half], pipeline), *_refused(passes, functions[half:], pipeline)]
    return []


def _told(error: Exception, function: tuple[str, Any]) -> Complaint:
    text, frames = function
    op = next(line for line in reversed(text.splitlines()) if " = " in line).strip()
    name, kinds = op.partition(" = ")[2].partition("(")[0].strip('"'), op.rpartition("} : ")[2]
    if name == "torch.operator":
        name = op.partition('name = "')[2].partition('"')[0]
    message = error.complaints[0].message if isinstance(error, LoweringError) and error.complaints else str(error)
    return Complaint(message, name, kinds, frames)
