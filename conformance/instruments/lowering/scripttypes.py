"""TorchScript's types and ops in the words of the torch dialect, and the Python stack that a node was traced from."""

from __future__ import annotations

import re
from typing import Any

from conformance.instruments.lowering.blame import Frame
from conformance.instruments.lowering.dialect import NotInDialectError

#: Of these a tensor can be made where a schema says Tensor.
NUMBERS = ("!torch.int", "!torch.float", "!torch.bool", "!torch.number")
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
#: TorchScript's names of ops that the dialect calls otherwise.
_RENAMED = {"torch.aten.__and__.Tensor": "torch.aten.bitwise_and.Tensor", "torch.aten.__or__.Tensor": "torch.aten.bitwise_or.Tensor"}
_FRAME = re.compile(r"^(.+)\((\d+)\): (.+)$", re.MULTILINE)
#: Frames of the tracer itself, below the user's code.
_TRACER = re.compile(r"[/\\]torch[/\\]jit[/\\]_?trace")


def op_name(node: Any) -> str:
    """`torch.aten.add.Tensor` of a node whose schema begins `aten::add.Tensor(`. Raises NotInDialectError for one without a schema."""
    schema = str(node.schema())
    if "(" not in schema or "::" not in schema.partition("(")[0]:
        raise NotInDialectError(f"{node.kind()} has no schema, and so no op in the torch dialect")
    name = f"torch.{schema.partition('(')[0].replace('::', '.')}"
    return _RENAMED.get(name, name)


def dialect_type(kind: str) -> str:
    """A TorchScript type in the dialect: `List[int]` is `!torch.list<int>`. Raises NotInDialectError."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    wrapped = re.fullmatch(r"(List|Optional)\[(.*)\]", kind)
    if wrapped is None:
        raise NotInDialectError(f"the type {kind} has no word in the torch dialect")
    inner = dialect_type(wrapped[2]).replace("!torch.", "")
    return f"!torch.{wrapped[1].lower()}<{inner}>"


def element_of(kind: str) -> str:
    """The type inside a TorchScript container: `float` of `List[float]`; of what names none, `int`."""
    return kind.partition("[")[2].rpartition("]")[0] or "int"


def frames_of_node(node: Any) -> list[Frame]:
    """The Python stack of a node, the innermost first, without the tracer's own frames."""
    found = [(file, int(line), function) for file, line, function in _FRAME.findall(str(node.sourceRange()))]
    for number, (file, _, _) in enumerate(found):
        if _TRACER.search(file):
            return found[:number]
    return found
