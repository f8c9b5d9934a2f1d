"""torch's own list of ops with samples of their inputs, OpInfo's `op_db` (torch.testing._internal).

Names are read from source, which costs half a second and needs nothing: importing the list takes 1 to 13 s and, beside torch,
expecttest, PyYAML (1.13 and 2.0) and setuptools (2.9 and 2.10).
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import logging
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

#: What the import of the list needs beside torch and the numpy of the release.
REQUIREMENTS = ("expecttest", "pyyaml", "setuptools<80")
#: What torch.testing seeds samples with.
_SEED = 1234
_INTERNAL = Path(torch.__file__).parent / "testing" / "_internal"

#: At the top of a file the assignment of `op_db`, up to its bracket, and functions that make an entry, up to what stands next there.
_ENTRIES = re.compile(r"^op_db\b(?s:.*?)^\]|^def make_\w+_opinfo\b(?s:.*?)(?=^[^\s)\]#])", re.M)


@functools.cache
def op_names() -> tuple[str, ...]:
    """The names of the ops in this torch's `op_db`, as `nn.functional.rms_norm`, sorted; empty where torch carries no such list."""
    files = [_INTERNAL / "common_methods_invocations.py", *sorted((_INTERNAL / "opinfo" / "definitions").glob("*.py"))]
    trees = [_parsed(path.read_text(encoding="utf-8")) for path in files if path.is_file()]
    return tuple(sorted({name for tree in trees for part in _lists(tree) for name in _named(part)}))


def _parsed(text: str) -> ast.Module:
    """What `_lists` looks at, parsed: the rest of these files, half of 25,000 lines, is left out where that can be done."""
    parts = [match.group() for match in _ENTRIES.finditer(text)]
    whole = sum(part.startswith("op_db") for part in parts) == len(re.findall(r"^op_db\b", text, re.M))
    try:
        return ast.parse("\n".join(parts) if whole else text)
    except SyntaxError:
        return ast.parse(text)


def _lists(tree: ast.Module) -> Iterator[ast.AST]:
    """What makes entries: the value of `op_db`, and functions that build an entry (windows, mvlgamma)."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("make_") and node.name.endswith("_opinfo"):
            yield node
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == "op_db" and node.value is not None:
            yield node.value


def _named(part: ast.AST) -> Iterator[str]:
    """The literal names in calls such as `UnaryUfuncInfo("abs", ...)`; each variant of an op repeats the op's name."""
    for call in ast.walk(part):
        made = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if made == "DecorateInfo" or not (made.endswith("Info") or (made.startswith("make_") and made.endswith("_opinfo"))):
            continue
        name = next((keyword.value for keyword in call.keywords if keyword.arg == "name"), call.args[0] if call.args else None)
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


@functools.cache
def _by_name() -> dict[str, list[Any]]:
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # says at each import that there is no CUDA
    found: dict[str, list[Any]] = {}
    for info in importlib.import_module("torch.testing._internal.common_methods_invocations").op_db:
        found.setdefault(info.name, []).append(info)
    return found


def infos(name: str) -> list[Any]:
    """The entries of one op, a variant each; the first call imports the list."""
    return _by_name().get(name, [])


def listed_names() -> tuple[str, ...]:
    """The names that the imported list really holds, sorted."""
    return tuple(sorted(_by_name()))


def samples(info: Any, dtype: torch.dtype, most: int | None) -> Iterator[Any]:
    """The samples of an entry on the CPU, at most `most` of them. Nothing where the entry does not hold for `dtype`.

    They are those of `info.sample_inputs`, made by the function behind it: that method looks for a unittest in the stack (2.4 and later),
    which under pytest takes longer than the samples, and seeds accelerators that make none, for which torch formats the stack each time.
    """
    if dtype not in info.supported_dtypes("cpu"):
        return
    made = iter(info.sample_inputs_func(info, "cpu", dtype, False))
    for _ in itertools.count() if most is None else range(most):
        if _seeds():
            _seed(_SEED)
        try:
            sample = next(made)
        except StopIteration:
            return
        yield sample


@functools.cache
def _seeds() -> bool:
    """Whether OpInfo of this release seeds before each sample (2.8 and later)."""
    tracked = getattr(importlib.import_module("torch.testing._internal.common_utils"), "TrackedInputIter", None)
    return tracked is not None and "set_seed" in inspect.signature(tracked).parameters


def _seed(seed: int) -> None:
    """As `set_rng_seed` of torch.testing does on the CPU."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def title(info: Any) -> str:
    """The name of an entry with its variant, as `div_floor_rounding`."""
    return f"{info.name}_{info.variant_test_name}" if info.variant_test_name else str(info.name)
