"""A traced program in the torch dialect: the importer that torch-mlir's wheel no longer has, over its Python bindings.

Each node of the inlined graph becomes the op of its schema, `aten::add.Tensor` the op `torch.aten.add.Tensor`, with the Python stack that
traced it as its location. Weights are arguments of the program, so that it stays small; containers are taken apart, since a program of the
torch dialect answers with tensors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from conformance.instruments.lowering.blame import innermost
from conformance.instruments.lowering.dialect import NotInDialectError, value_tensor
from conformance.instruments.lowering.function import Function
from conformance.instruments.lowering.passes import Complaint
from conformance.instruments.lowering.program import Program
from conformance.instruments.lowering.scripttypes import NUMBERS, dialect_type, frames_of_node, op_name


def import_trace(traced: Any, arguments: Sequence[torch.Tensor], varying: Sequence[Mapping[int, str]], *, cut: bool = False) -> Program:
    """The program of `traced` (an `instruments.capture.Traced`) in the torch dialect.

    `varying` gives for each argument the axes whose size is left open. `cut` makes further arguments of what ops answer that the dialect
    has not, so that the rest of the program can be looked at. Raises NotInDialectError, blamed on the line that was traced.
    """
    graph = traced.graph
    inputs = list(graph.inputs())
    owners = inputs[:1] if isinstance(traced.program, torch.jit.ScriptModule) else []
    reads, weights = _attributes(traced.program, graph, owners)
    types = [*(value_tensor(each) for each in weights), *(value_tensor(each, tuple(axes)) for each, axes in zip(arguments, varying))]
    function = Function(types)
    values = {at: function.arguments[held.position] if isinstance(held, _Weight) else held for at, held in reads.items()}
    values.update({value.unique(): each for value, each in zip(inputs[len(owners) :], function.arguments[len(weights) :])})
    importer = _Importer(function, values, cut=cut)
    for node in graph.nodes():
        importer.node(node)
    results = [leaf for output in graph.outputs() for leaf in _leaves(values[output.unique()])]
    return Program(asm=function.finish(results), weights=tuple(weights), route="script", unknown=tuple(importer.unknown))


class _Weight:
    """A parameter or buffer that a node reads, as its position among the weights."""

    def __init__(self, position: int) -> None:
        self.position = position


def _attributes(program: Any, graph: Any, owners: Sequence[Any]) -> tuple[dict[int, Any], list[torch.Tensor]]:
    """What each attribute read leads to, by the value's number, and the tensors among them, each once."""
    reads: dict[int, Any] = {owner.unique(): program for owner in owners}
    weights: list[torch.Tensor] = []
    known: dict[int, _Weight] = {}
    for node in graph.nodes():
        if node.kind() != "prim::GetAttr":
            continue
        held = getattr(reads[node.input().unique()], node.s("name"))
        if isinstance(held, torch.Tensor):
            if id(held) not in known:
                known[id(held)] = _Weight(len(weights))
                weights.append(held)
            held = known[id(held)]
        reads[node.output().unique()] = held
    return reads, weights


class _Importer:
    """Turns nodes into ops. `values` maps a TorchScript value's number to an op's result, or to what stands for it in Python."""

    def __init__(self, function: Function, values: dict[int, Any], *, cut: bool) -> None:
        self.function, self.values, self.cut = function, values, cut
        self.unknown: list[Complaint] = []

    def node(self, node: Any) -> None:
        frames = frames_of_node(node)
        handler = _PRIMITIVES.get(node.kind(), _Importer._op)
        try:
            with self.function.written_at(frames):
                handler(self, node)
        except NotInDialectError as error:
            error.blame = error.blame or innermost(frames)
            raise

    def _inputs(self, node: Any) -> list[Any]:
        return [self.values[value.unique()] for value in node.inputs()]

    def _give(self, node: Any, held: Sequence[Any]) -> None:
        self.values.update({output.unique(): each for output, each in zip(node.outputs(), held)})

    def _attribute(self, node: Any) -> None:
        """What is read was found before the function was begun."""

    def _constant(self, node: Any) -> None:
        kind = str(node.output().type())
        held = None if kind == "NoneType" else node.output().toIValue()
        self._give(node, [self.function.literal(held, kind)])

    def _same(self, node: Any) -> None:
        """An op that answers with its argument."""
        self._give(node, self._inputs(node)[:1])

    def _construct_list(self, node: Any) -> None:
        self._give(node, [self.function.list_of(self._inputs(node), str(node.output().type()))])

    def _construct_tuple(self, node: Any) -> None:
        self._give(node, [self._inputs(node)])

    def _construct_dict(self, node: Any) -> None:
        self._give(node, [self._inputs(node)[1::2]])

    def _unpack(self, node: Any) -> None:
        held = self.values[node.input().unique()]
        if not isinstance(held, list):
            types = [dialect_type(str(output.type())) for output in node.outputs()]
            held = self.function.make("torch.prim.ListUnpack", [held], types)
        self._give(node, held)

    def _op(self, node: Any) -> None:
        name, operands = op_name(node), self._inputs(node)
        if any(isinstance(each, list) for each in operands):
            raise NotInDialectError(f"{name} takes a tuple, which the torch dialect has not")
        name, operands = self._with_tensors(name, operands, str(node.schema()))
        results = [dialect_type(str(output.type())) for output in node.outputs()]
        known = self.function.knows(name)
        self._give(node, self.function.make(name, operands, results) if known else self._unregistered(name, operands, results, node))

    def _unregistered(self, name: str, operands: list[Any], results: list[str], node: Any) -> list[Any]:
        """An op that the dialect has not; where the program is cut, in its place arguments of what the trace saw."""
        kinds = f"({', '.join(str(each.type) for each in operands)}) -> ({', '.join(results)})"
        self.unknown.append(Complaint(f"the torch dialect has no op {name}", name, kinds, tuple(frames_of_node(node))))
        seen = [output.type() for output in node.outputs()]
        known = [result == "!torch.tensor" and kind.sizes() is not None for kind, result in zip(seen, results)]
        if not self.cut or not all(known):
            return self.function.operator(name, operands, results)
        tensors = [torch.empty(kind.sizes(), dtype=kind.dtype(), device="meta") for kind in seen]
        return [self.function.argument(value_tensor(each, range(each.dim()))) for each in tensors]

    def _with_tensors(self, name: str, operands: list[Any], schema: str) -> tuple[str, list[Any]]:
        """TorchScript takes a number where a schema says Tensor: the op's own form for numbers, else a tensor is made of it."""
        wanted = [str(argument.type) for argument in torch._C.parse_schema(schema).arguments]
        numbers = [at for at, (kind, held) in enumerate(zip(wanted, operands)) if kind == "Tensor" and str(held.type) in NUMBERS]
        scalar = f"{name.rpartition('.')[0]}.Scalar"
        if numbers and name.endswith(".Tensor") and self.function.knows(scalar):
            return scalar, operands
        for at in numbers:
            operands[at] = self.function.make("torch.prim.NumToTensor.Scalar", [operands[at]], ["!torch.tensor"])[0]
        return name, operands


_PRIMITIVES: dict[str, Callable[[_Importer, Any], None]] = {
    "prim::GetAttr": _Importer._attribute,
    "prim::Constant": _Importer._constant,
    "prim::ListConstruct": _Importer._construct_list,
    "prim::TupleConstruct": _Importer._construct_tuple,
    "prim::DictConstruct": _Importer._construct_dict,
    "prim::ListUnpack": _Importer._unpack,
    "prim::TupleUnpack": _Importer._unpack,
    # means something under functorch alone; the dialect has lift_fresh_copy, and not this
    "aten::lift_fresh": _Importer._same,
}


def _leaves(held: Any) -> list[Any]:
    return [leaf for each in held for leaf in _leaves(each)] if isinstance(held, list) else [held]
