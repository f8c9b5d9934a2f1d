"""What is written for others from a template: a new case, which runs as it is, and the workflow of a matrix on GitHub."""

from __future__ import annotations

import json
import re
from pathlib import Path

from conformance import selectors
from conformance.config import Config, builtin_cases
from conformance.errors import ConfigError
from conformance.incell.identity import FAMILIES
from conformance.origin import Origin
from conformance.plan import Selection, case_files, case_names

_TEMPLATES = Path(__file__).parent / "templates"
_TEMPLATE = _TEMPLATES / "case.py"
_WORKFLOW = _TEMPLATES / "workflow.yml"
_NAME = "name_of_case"


def new_case(config: Config, family: str, name: str) -> Path:
    """Write the file of the case `family.name`; returns its path. Raises ConfigError for a name that is none, or is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.startswith("test_"):
        raise ConfigError(f"{name!r} is no name of a case: a-z, 0-9 and _, without test_, as growth_keeps_what_it_had")
    folder = _folder(config, family)
    taken = next((file.path for file in case_files(config, Selection()) if f"{family}.{name}" in case_names(file)), None)
    path = folder / f"test_{name}.py"
    if taken or path.exists():
        raise ConfigError(f"there is a case {family}.{name} already, in {taken or path}")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(_TEMPLATE.read_text(encoding="utf-8").replace(_NAME, name), encoding="utf-8")
    return path


def _folder(config: Config, family: str) -> Path:
    """Where cases of that family are written: the built-in ones in the checkout that they belong to, the user's where `cases` says."""
    known = [each for each in FAMILIES if each != "control"]
    if family not in known:
        raise ConfigError(f"{family!r} is no family{selectors.close_matches(family, known)}")
    if family == "user":
        if not config.cases:
            raise ConfigError(
                f"{config.project / 'pyproject.toml'} names no folder for cases of your own: make one, and say so there\n"
                "mkdir -p tests/cases\n[tool.conformance]\ncases = ['tests/cases']"
            )
        return config.cases[0]
    if builtin_cases().resolve() != config.project / "cases":
        raise ConfigError(f"family {family} belongs to the tool's own checkout; cases of your project are of family user: new-case user")
    return builtin_cases() / family


def told(path: Path, family: str, name: str) -> list[str]:
    """What to do next, for a terminal."""
    case = f"--case {family}.{name}"
    return [
        f"written: {path}, a case that passes and catches its twin as it stands",
        "  1. replace the pair, the assertion and the docstring by your own",
        f"  2. conformance run --torch 2.13.0 {case}           # what it comes to; `conformance show {family}.{name}` says why",
        f"  3. conformance run --torch 2.13.0 {case} --twins   # does it catch its mistakes?",
    ]


def workflow(origin: Origin, subject: str, torch: str, devices: str) -> str:
    """The text of a workflow that runs the checks of `subject` every week; all others than the built-in words are quoted as JSON is."""
    words = {"SUBJECT": subject, "TORCH": torch, "DEVICES": devices}
    lines = _WORKFLOW.read_text(encoding="utf-8").replace("OWNER/torch-conformance", origin.repository).replace("@REF", f"@{origin.ref}")
    for word, value in words.items():
        lines = lines.replace(f'"{word}"', json.dumps(value))
    return lines


def new_workflow(project: Path, name: str, text: str) -> Path:
    """Write a workflow of that name into a project; returns its path. Raises ConfigError where there is one already."""
    path = project / ".github" / "workflows" / name
    if path.exists():
        raise ConfigError(f"there is a workflow {path} already: remove it, or edit it by hand")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
