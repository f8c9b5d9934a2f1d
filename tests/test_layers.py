"""Two layers, held apart: what runs in the cell imports the standard library, pytest, packaging (which pytest brings) and torch."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "conformance"
CASES = PACKAGE.parent / "cases"
#: What the tool writes for others runs where they have torch.
TEMPLATES = PACKAGE / "templates"
IN_CELL = ("incell", "guards", "instruments", "subjects")
ALLOWED = {*sys.stdlib_module_names, "pytest", "_pytest", "packaging", "torch", "torch_xla", "numpy"}
#: What a requirement set brings may be imported inside a function, where the requirement is declared.
#: By the requirement set of a case or a subject; `reference` lies beside the program that imports it.
DECLARED = {"transformers", "einops", "timm", "nanochat", "onnx", "onnxruntime", "torch_mlir", "iree", "reference"}


def _imports(path: Path, *, module_level: bool) -> set[str]:
    """Dotted names that a file imports, functions' own imports included unless `module_level`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if module_level else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _files() -> list[Path]:
    return [path for folder in IN_CELL for path in sorted((PACKAGE / folder).rglob("*.py"))] + [
        *sorted(CASES.rglob("*.py")),
        *sorted(TEMPLATES.glob("*.py")),
    ]


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.relative_to(PACKAGE.parent).as_posix())
def test_in_cell_code_imports_only_what_a_cell_has(path: Path) -> None:
    for module in _imports(path, module_level=False):
        top = module.partition(".")[0]
        if top == "conformance":
            assert module.split(".")[1] in IN_CELL, module
        else:
            assert top in ALLOWED | DECLARED, module
    assert not {module.partition(".")[0] for module in _imports(path, module_level=True)} & DECLARED


def test_outside_does_not_import_torch() -> None:
    outside = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in (*IN_CELL, "cases", "templates")]
    assert outside
    assert not [path for path in outside if any(module.partition(".")[0] == "torch" for module in _imports(path, module_level=False))]
