"""A function of the torch dialect while it is written, op by op, over torch-mlir's Python bindings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from conformance.instruments.lowering.blame import Frame
from conformance.instruments.lowering.dialect import NotInDialectError, context, location, value_tensor
from conformance.instruments.lowering.scripttypes import dialect_type, element_of

_TENSOR = "!torch.tensor"


class Function:
    """`main` of a module of its own. Its arguments are tensors, of the `types` that `dialect.value_tensor` gives."""

    def __init__(self, types: Sequence[str]) -> None:
        from torch_mlir import ir

        self._ir, self._context = ir, context()
        self._bounds: list[Any] = []
        with self._context, ir.Location.unknown():
            self._module = ir.Module.create()
            attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": self._signature([], [])}
            with ir.InsertionPoint(self._module.body):
                self._function = ir.Operation.create("func.func", attributes=attributes, regions=1)
            self._block = self._function.regions[0].blocks.append()
            self._location = ir.Location.unknown()
            self.arguments = [self.argument(each) for each in types]

    @contextlib.contextmanager
    def written_at(self, frames: Sequence[Frame]) -> Iterator[None]:
        """What is made within comes from the Python stack `frames`, the innermost frame first."""
        self._location = location(frames, self._context)
        with self._context, self._location, self._ir.InsertionPoint(self._block):
            yield

    def knows(self, name: str) -> bool:
        """Whether the dialect has an op of this name."""
        return bool(self._context.is_registered_operation(name))

    def argument(self, kind: str) -> Any:
        """One more argument, a tensor of this type."""
        ir = self._ir
        self._bounds.append(ir.DictAttr.get({"torch.type_bound": ir.TypeAttr.get(ir.Type.parse(kind))}))
        return self._block.add_argument(ir.Type.parse(_TENSOR), self._location)

    def make(self, name: str, operands: Sequence[Any], results: Sequence[str], attributes: Mapping[str, Any] | None = None) -> list[Any]:
        """The results of a new op."""
        types = [self._ir.Type.parse(result) for result in results]
        made = self._ir.Operation.create(name, results=types, operands=list(operands), attributes=dict(attributes or {}))
        return list(made.results)

    def operator(self, name: str, operands: Sequence[Any], results: Sequence[str]) -> list[Any]:
        """The results of an op that the dialect has not, under the dialect's name for such."""
        return self.make("torch.operator", operands, results, {"name": self._ir.StringAttr.get(name)})

    def list_of(self, inner: Sequence[Any], kind: str) -> Any:
        """A list, of a TorchScript type such as `List[int]`."""
        return self.make("torch.prim.ListConstruct", inner, [dialect_type(kind)])[0]

    def literal(self, held: Any, kind: str = "") -> Any:
        """A Python value of the TorchScript type `kind`; a tuple stays Python's, a list of literals. Raises NotInDialectError."""
        if isinstance(held, torch.Tensor):
            return self._constant("tensor.literal", "tensor", self._elements(held))
        if isinstance(held, tuple):
            return [self.literal(each) for each in held]
        if isinstance(held, list):
            return self.list_of([self.literal(each) for each in held], f"List[{element_of(kind)}]")
        return self._scalar(held, kind)

    def _scalar(self, held: Any, kind: str) -> Any:
        ir = self._ir
        if held is None:
            return self.make("torch.constant.none", [], ["!torch.none"])[0]
        if isinstance(held, bool):
            return self._constant("constant.bool", "bool", ir.BoolAttr.get(held))
        if isinstance(held, int):
            return self._constant("constant.int", "int", ir.IntegerAttr.get(ir.IntegerType.get_signless(64), held))
        if isinstance(held, float):
            return self._constant("constant.float", "float", ir.FloatAttr.get_f64(held))
        if isinstance(held, torch.device):
            return self._constant("constant.device", "Device", ir.StringAttr.get(str(held)))
        if isinstance(held, str):
            return self._constant("constant.str", "str", ir.StringAttr.get(held))
        raise NotInDialectError(f"a constant of type {kind or type(held).__name__} has no word in the torch dialect")

    def _constant(self, op: str, kind: str, value: Any) -> Any:
        return self.make(f"torch.{op}", [], [f"!torch.{kind}"], {"value": value})[0]

    def _elements(self, held: torch.Tensor) -> Any:
        """The numbers of a constant tensor; what Python made of a number while tracing has rank 0."""
        ir = self._ir
        element = value_tensor(held).rpartition(",")[2].rstrip(">")
        builtin = f"tensor<{''.join(f'{size}x' for size in held.shape)}{element}>"
        if held.dtype == torch.bool:
            return ir.Attribute.parse(f"dense<{str(held.tolist()).lower()}> : {builtin}")
        array = held.detach().cpu().contiguous().numpy()
        return ir.DenseElementsAttr.get(array, type=ir.RankedTensorType(ir.Type.parse(builtin)).element_type)

    def finish(self, results: Sequence[Any]) -> str:
        """The module's text, with locations, of a function that answers with `results`. Raises NotInDialectError where there are none."""
        ir = self._ir
        if not results:
            raise NotInDialectError("the traced program answers with no tensor")
        with self._context, ir.Location.unknown(), ir.InsertionPoint(self._block):
            ir.Operation.create("func.return", operands=list(results))
            self._function.attributes["arg_attrs"] = ir.ArrayAttr.get(self._bounds)
            inputs = [argument.type for argument in self._block.arguments]
            self._function.attributes["function_type"] = self._signature(inputs, [value.type for value in results])
            return str(self._module.operation.get_asm(enable_debug_info=True))

    def _signature(self, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
        return self._ir.TypeAttr.get(self._ir.FunctionType.get(list(inputs), list(results)))
