"""A traced program in the torch dialect: the importer that torch-mlir's wheel no longer has, over its Python bindings.

Each node of the inlined graph becomes the op of its schema, `aten::add.Tensor` the op `torch.aten.add.Tensor`, with the Python stack that
traced it as its location. Weights are arguments of the program, so that it stays small; containers are taken apart, since a program of the
torch dialect answers with tensors alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from conformance.instruments.lowering.blame import Frame, innermost
from conformance.instruments.lowering.dialect import NotInDialectError, context, location, value_tensor
from conformance.instruments.lowering.passes import Complaint
from conformance.instruments.lowering.program import Program

_FRAME = re.compile(r"^(.+)\((\d+)\): (.+)$", re.MULTILINE)
#: Frames of the tracer itself, below the user's code.
_TRACER = re.compile(r"[/\\]torch[/\\]jit[/\\]_?trace")
_SCALARS = {
    "int": "!torch.int",
    "float": "!torch.float",
    "bool": "!torch.bool",
    "str": "!torch.str",
    "NoneType": "!torch.none",
    "Device": "!torch.Device",
    "number": "!torch.number",
    "Scalar": "!torch.number",
    "Generator": "!torch.Generator",
    "Tensor": "!torch.tensor",
}
_NUMBERS = ("!torch.int", "!torch.float", "!torch.bool", "!torch.number")
#: TorchScript's names of ops that the dialect calls otherwise.
_RENAMED = {"torch.aten.__and__.Tensor": "torch.aten.bitwise_and.Tensor", "torch.aten.__or__.Tensor": "torch.aten.bitwise_or.Tensor"}


def import_trace(traced: Any, arguments: Sequence[torch.Tensor], varying: Sequence[Mapping[int, str]], *, cut: bool = False) -> Program:
    """The program of `traced` (an `instruments.capture.Traced`) in the torch dialect.

    `varying` gives for each argument the axes whose size is left open. `cut` makes further arguments of what ops answer that the dialect
    has not, so that the rest of the program can be looked at. Raises NotInDialectError, blamed on the line that was traced.
    """
    return _Importer(traced, cut=cut).program(arguments, varying)


class _Importer:
    """Turns nodes into ops. `values` maps a TorchScript value to an op's result, or to what stands for it in Python."""

    def __init__(self, traced: Any, *, cut: bool) -> None:
        from torch_mlir import ir

        self.cut = cut
        self.unknown: list[Complaint] = []

        self.ir, self.traced, self.context = ir, traced, context()
        self.values: dict[int, Any] = {}
        self.weights: dict[str, torch.Tensor] = {}
        self.block: Any = None

    def program(self, arguments: Sequence[torch.Tensor], varying: Sequence[Mapping[int, str]]) -> Program:
        graph = self.traced.graph
        inputs = list(graph.inputs())
        first = 1 if isinstance(self.traced.program, torch.jit.ScriptModule) else 0
        with self.context, self.ir.Location.unknown():
            module = self.ir.Module.create()
            self._name_weights(graph, inputs[:first])
            tensors = [*self.weights.values(), *arguments]
            axes = [*({} for _ in self.weights), *varying]
            types = [value_tensor(tensor, tuple(names)) for tensor, names in zip(tensors, axes)]
            function = self._function(module, types)
            given = list(self.block.arguments)
            self.weight_values = dict(zip(self.weights, given))
            self.values.update({value.unique(): argument for value, argument in zip(inputs[first:], given[len(self.weights) :])})
            for node in graph.nodes():
                self._node(node)
            results = [leaf for output in graph.outputs() for leaf in _leaves(self.values[output.unique()])]
            self._finish(function, results)
            asm = module.operation.get_asm(enable_debug_info=True)
        return Program(asm=asm, weights=tuple(self.weights.values()), route="script", unknown=tuple(self.unknown))

    def _name_weights(self, graph: Any, owners: Sequence[Any]) -> None:
        """Walk the attribute reads: what each leads to, and which tensors must be arguments."""
        for owner in owners:
            self.values[owner.unique()] = self.traced.program
        names: dict[int, str] = {}
        for node in graph.nodes():
            if node.kind() != "prim::GetAttr":
                continue
            read = getattr(self.values[node.input().unique()], node.s("name"))
            if isinstance(read, torch.Tensor):
                name = names.setdefault(id(read), f"weight{len(names)}")
                self.weights[name] = read
                read = _Weight(name)
            self.values[node.output().unique()] = read

    def _function(self, module: Any, types: Sequence[str]) -> Any:
        ir = self.ir
        self.bounds = [ir.DictAttr.get({"torch.type_bound": ir.TypeAttr.get(ir.Type.parse(each))}) for each in types]
        tensor = ir.Type.parse("!torch.tensor")
        attributes = {
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([tensor] * len(types), [])),
        }
        with ir.InsertionPoint(module.body):
            function = ir.Operation.create("func.func", attributes=attributes, regions=1)
        self.block = function.regions[0].blocks.append(*[tensor] * len(types))
        return function

    def _finish(self, function: Any, results: Sequence[Any]) -> None:
        ir = self.ir
        if not results:
            raise NotInDialectError("the traced program answers with no tensor")
        with ir.InsertionPoint(self.block):
            ir.Operation.create("func.return", operands=list(results))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(self.bounds)
        inputs = [argument.type for argument in self.block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [value.type for value in results]))

    def _node(self, node: Any) -> None:
        frames = _frames(node)
        self.location = location(frames, self.context)
        kind = node.kind()
        handler: Callable[[Any], None] = _PRIMITIVES.get(kind, _Importer._op)
        try:
            with self.location, self.ir.InsertionPoint(self.block):
                handler(self, node)
        except NotInDialectError as error:
            error.blame = error.blame or innermost(frames)
            raise

    def _attribute(self, node: Any) -> None:
        held = self.values[node.output().unique()]
        if isinstance(held, _Weight):
            self.values[node.output().unique()] = self.weight_values[held.name]

    def _constant(self, node: Any) -> None:
        output = node.output()
        kind = str(output.type())
        held = None if kind == "NoneType" else output.toIValue()
        self.values[output.unique()] = self._literal(held, kind)

    def _literal(self, held: Any, kind: str) -> Any:
        """An op that gives a Python value. Tuples and lists of them stay Python's."""
        ir = self.ir
        if held is None:
            return self._make("torch.constant.none", [], ["!torch.none"])
        if isinstance(held, torch.Tensor):
            return self._tensor(held)
        if isinstance(held, bool):
            return self._make("torch.constant.bool", [], ["!torch.bool"], {"value": ir.BoolAttr.get(held)})
        if isinstance(held, int):
            number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), held)
            return self._make("torch.constant.int", [], ["!torch.int"], {"value": number})
        if isinstance(held, float):
            return self._make("torch.constant.float", [], ["!torch.float"], {"value": ir.FloatAttr.get_f64(held)})
        if isinstance(held, torch.device):
            return self._make("torch.constant.device", [], ["!torch.Device"], {"value": ir.StringAttr.get(str(held))})
        if isinstance(held, str):
            return self._make("torch.constant.str", [], ["!torch.str"], {"value": ir.StringAttr.get(held)})
        if isinstance(held, (list, tuple)):
            inner = [self._literal(each, "") for each in held]
            return inner if isinstance(held, tuple) else self._list(inner, f"List[{_element_of(kind)}]")
        raise NotInDialectError(f"a constant of type {kind} has no word in the torch dialect")

    def _tensor(self, held: torch.Tensor) -> Any:
        """A constant tensor; what Python made of a number while tracing has rank 0."""
        ir = self.ir
        kind = value_tensor(held)
        builtin = f"tensor<{''.join(f'{size}x' for size in held.shape)}{kind.rpartition(',')[2].rstrip('>')}>"
        if held.dtype == torch.bool:
            literal = ir.Attribute.parse(f"dense<{_nested(held)}> : {builtin}")
        else:
            literal = ir.DenseElementsAttr.get(
                held.detach().cpu().contiguous().numpy(), type=ir.RankedTensorType(ir.Type.parse(builtin)).element_type
            )
        return self._make("torch.tensor.literal", [], ["!torch.tensor"], {"value": literal})

    def _construct_list(self, node: Any) -> None:
        inner = [self.values[value.unique()] for value in node.inputs()]
        self.values[node.output().unique()] = self._list(inner, str(node.output().type()))

    def _list(self, inner: Sequence[Any], kind: str) -> Any:
        return self._make("torch.prim.ListConstruct", inner, [_type(kind)])

    def _construct_tuple(self, node: Any) -> None:
        self.values[node.output().unique()] = [self.values[value.unique()] for value in node.inputs()]

    def _construct_dict(self, node: Any) -> None:
        self.values[node.output().unique()] = [self.values[value.unique()] for value in list(node.inputs())[1::2]]

    def _unpack(self, node: Any) -> None:
        held = self.values[node.input().unique()]
        outputs = list(node.outputs())
        if not isinstance(held, list):
            held = self._make_all("torch.prim.ListUnpack", [held], [_type(str(output.type())) for output in outputs])
        self.values.update({output.unique(): each for output, each in zip(outputs, held)})

    def _op(self, node: Any) -> None:
        name = _op_name(node)
        operands = [self.values[value.unique()] for value in node.inputs()]
        if any(isinstance(each, list) for each in operands):
            raise NotInDialectError(f"{name} takes a tuple, which the torch dialect has not")
        name, operands = self._with_tensors(name, operands, str(node.schema()))
        results = [_type(str(output.type())) for output in node.outputs()]
        if self.context.is_registered_operation(name):
            made = self._make_all(name, operands, results)
        else:
            made = self._unregistered(name, operands, results, node)
        self.values.update({output.unique(): each for output, each in zip(node.outputs(), made)})

    def _unregistered(self, name: str, operands: list[Any], results: list[str], node: Any) -> list[Any]:
        """An op that the dialect has not, under the dialect's name for such; or in its place arguments of what the trace saw."""
        kinds = f"({', '.join(str(each.type) for each in operands)}) -> ({', '.join(results)})"
        self.unknown.append(Complaint(f"the torch dialect has no op {name}", name, kinds, tuple(_frames(node))))
        sizes = [output.type().sizes() if result == "!torch.tensor" else None for output, result in zip(node.outputs(), results)]
        if not self.cut or not all(isinstance(each, list) for each in sizes):
            return self._make_all("torch.operator", operands, results, {"name": self.ir.StringAttr.get(name)})
        return [self._argument(output.type()) for output in node.outputs()]

    def _argument(self, kind: Any) -> Any:
        """A further argument of a traced tensor's type, all its sizes open."""
        ir = self.ir
        bound = value_tensor(torch.empty(kind.sizes(), dtype=kind.dtype(), device="meta"), range(len(kind.sizes())))
        self.bounds.append(ir.DictAttr.get({"torch.type_bound": ir.TypeAttr.get(ir.Type.parse(bound))}))
        return self.block.add_argument(ir.Type.parse("!torch.tensor"), self.location)

    def _with_tensors(self, name: str, operands: list[Any], schema: str) -> tuple[str, list[Any]]:
        """TorchScript takes a number where a schema says Tensor: the op's own form for numbers, else a tensor is made of it."""
        wanted = [str(argument.type) for argument in torch._C.parse_schema(schema).arguments]
        numbers = [at for at, (kind, held) in enumerate(zip(wanted, operands)) if kind == "Tensor" and str(held.type) in _NUMBERS]
        scalar = f"{name.rpartition('.')[0]}.Scalar"
        if numbers and name.endswith(".Tensor") and self.context.is_registered_operation(scalar):
            return scalar, operands
        for at in numbers:
            operands[at] = self._make("torch.prim.NumToTensor.Scalar", [operands[at]], ["!torch.tensor"])
        return name, operands

    def _make(self, name: str, operands: Sequence[Any], results: Sequence[str], attributes: Mapping[str, Any] | None = None) -> Any:
        return self._make_all(name, operands, results, attributes)[0]

    def _make_all(
        self, name: str, operands: Sequence[Any], results: Sequence[str], attributes: Mapping[str, Any] | None = None
    ) -> list[Any]:
        types = [self.ir.Type.parse(result) for result in results]
        made = self.ir.Operation.create(name, results=types, operands=list(operands), attributes=dict(attributes or {}))
        return list(made.results)


_PRIMITIVES: dict[str, Callable[[Any, Any], None]] = {
    "prim::GetAttr": _Importer._attribute,
    "prim::Constant": _Importer._constant,
    "prim::ListConstruct": _Importer._construct_list,
    "prim::TupleConstruct": _Importer._construct_tuple,
    "prim::DictConstruct": _Importer._construct_dict,
    "prim::ListUnpack": _Importer._unpack,
    "prim::TupleUnpack": _Importer._unpack,
}


class _Weight:
    """A parameter or buffer that a node reads."""

    def __init__(self, name: str) -> None:
        self.name = name


def _op_name(node: Any) -> str:
    """`torch.aten.add.Tensor` of a node whose schema begins `aten::add.Tensor(`."""
    schema = str(node.schema())
    if "(" not in schema or "::" not in schema.partition("(")[0]:
        raise NotInDialectError(f"{node.kind()} has no schema, and so no op in the torch dialect")
    name = f"torch.{schema.partition('(')[0].replace('::', '.')}"
    return _RENAMED.get(name, name)


def _type(kind: str) -> str:
    """A TorchScript type in the dialect: `List[int]` is `!torch.list<int>`. Raises NotInDialectError."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    wrapped = re.fullmatch(r"(List|Optional)\[(.*)\]", kind)
    if wrapped is None:
        raise NotInDialectError(f"the type {kind} has no word in the torch dialect")
    inner = _type(wrapped[2]).replace("!torch.", "")
    return f"!torch.{wrapped[1].lower()}<{inner}>"


def _element_of(kind: str) -> str:
    return kind.partition("[")[2].rpartition("]")[0] or "int"


def _nested(tensor: torch.Tensor) -> str:
    return str(tensor.tolist()).lower()


def _leaves(held: Any) -> list[Any]:
    return [leaf for each in held for leaf in _leaves(each)] if isinstance(held, list) else [held]


def _frames(node: Any) -> list[Frame]:
    """The Python stack of a node, the innermost first, without the tracer's own frames."""
    found = [(file, int(line), function) for file, line, function in _FRAME.findall(str(node.sourceRange()))]
    for number, (file, _, _) in enumerate(found):
        if _TRACER.search(file):
            return found[:number]
    return found
