"""The op that a compiler dies of: the last one of the shortest beginning of a program that it does not survive.

A dead compiler names no op, and where it dies on the way to the torch dialect's backend form the ops cannot be tried one by one: their
types are not known yet.
"""

from __future__ import annotations

from typing import Any

from conformance.incell.deaths import ChildDeathError
from conformance.instruments.lowering.dialect import context
from conformance.instruments.lowering.narrowing import frames_of
from conformance.instruments.lowering.passes import Complaint, LoweringError, Passes


def deadly(passes: Passes, asm: str, pipeline: str) -> Complaint | None:
    """The op of `asm` (torch dialect) at which `pipeline` dies first, with its words; None where it dies of no beginning."""
    module = _parsed(asm)  # held: an op does not keep its module
    ops = _tensor_ops(module)
    low, high = 0, len(ops)
    found = _death(passes, asm, high, pipeline)
    if found is None:
        return None
    while high - low > 1:  # it survives the first `low` ops and dies of the first `high`
        middle = (low + high) // 2
        died = _death(passes, asm, middle, pipeline)
        low, high, found = (middle, high, found) if died is None else (low, middle, died)
    op = ops[high - 1]
    kinds = f"({', '.join(str(each.type) for each in op.operands)}) -> ({', '.join(str(each.type) for each in op.results)})"
    return Complaint(str(found), op.name, kinds, tuple(frames_of(op.location)))


def _death(passes: Passes, asm: str, count: int, pipeline: str) -> ChildDeathError | None:
    try:
        passes.run(_beginning(asm, count), pipeline, "the conversion of a part")
    except LoweringError:
        return None
    except ChildDeathError as death:
        return death
    return None


def _beginning(asm: str, count: int) -> str:
    """The program up to its first `count` ops on tensors; it answers with what of them nothing takes."""
    from torch_mlir import ir

    module = _parsed(asm)
    function = next(iter(module.body))
    block = function.regions[0].blocks[0]
    last = _tensor_ops(module)[count - 1]
    ops = [op.operation for op in block]
    for op in reversed(ops[ops.index(last) + 1 :]):
        op.erase()
    answers = [result for op in _tensor_ops(module) for result in op.results if not list(result.uses)]
    with ir.Location.unknown(context=module.context), ir.InsertionPoint(block):
        ir.Operation.create("func.return", operands=answers)
        inputs = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [answer.type for answer in answers]))
    return str(module.operation.get_asm(enable_debug_info=True))


def _parsed(asm: str) -> Any:
    from torch_mlir import ir

    return ir.Module.parse(asm, context=context())


def _tensor_ops(module: Any) -> list[Any]:
    """The ops of `main` that answer with tensors, in order."""
    block = next(iter(module.body)).regions[0].blocks[0]
    return [
        op.operation for op in block if any(str(each.type).startswith(("!torch.tensor", "!torch.vtensor")) for each in op.operation.results)
    ]
