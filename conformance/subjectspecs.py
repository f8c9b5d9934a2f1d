"""A user's subject as the outside knows it: alias, reference, what its environment needs, where its code is. Nothing is imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement

from conformance import entrypoints
from conformance.definednames import defined
from conformance.errors import ConfigError
from conformance.keys import files_digest
from conformance.tomlfiles import pyproject
from conformance.uses import EAGER, checked

if TYPE_CHECKING:
    from conformance.config import Config

#: Four series of transformers claim a torch that they do not run with (conformance/subjects/opt.py says which).
_TRANSFORMERS = "transformers[torch]!=4.50.*,!=4.51.*,!=5.14.*,!=5.19.*"
#: What the environment of a library's own model must have, by the library that a reference begins with.
LIBRARIES = {"transformers": (_TRANSFORMERS,), "timm": ("timm",), "nanochat": ()}
#: The subjects that ship with the tool.
BUILTIN = {"gpt": (), "opt": (_TRANSFORMERS,)}
#: Folders that hold no source of the project; nor do those whose name begins with a dot.
_NO_SOURCE = {"venv", "build", "dist", "node_modules", "site-packages", "reports", "__pycache__"}
_MOST_FILES = 20_000


@dataclass(frozen=True, kw_only=True)
class SubjectSpec:
    """One subject to check. `roots` hold its code: they are put on the import path, and the first to be blamed.

    `own` says that it belongs to the project whose pyproject is read, and no library brings it.
    """

    alias: str
    reference: str
    requirements: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    own: bool = False
    #: What it is for: the uses whose loud faults count.
    uses: tuple[str, ...] = (EAGER,)

    def sources(self) -> list[Path]:
        """The Python files of its code: those of the project, or, of a subject in a file, that file and those beside it."""
        if _is_file(self.reference):
            return sorted(file for root in self.roots for file in root.glob("*.py"))
        return [file for root in self.roots for file in sources(root)]

    def code(self) -> str:
        """The digest of its code: its records are valid for this code."""
        return files_digest(self.sources())


def spec(text: str, config: Config, *, alias: str = "", requirements: Sequence[str] = ()) -> SubjectSpec:
    """The subject that `text` names: a configured, built-in or announced one, `library:Model`, `package.module:build` or `file.py:build`.

    Raises ConfigError for what can be none of these, and for requirements that are none.
    """
    configured = config.subjects.get(text, {})
    wanted = (*configured.get("requirements", ()), *requirements)
    for requirement in wanted:
        _check_requirement(requirement)
    if text in BUILTIN and not configured:
        return SubjectSpec(alias=text, reference=f"conformance.subjects.{text}:SUBJECT", requirements=(*BUILTIN[text], *wanted))
    table = pyproject(config.project)
    announced = None if configured else entrypoints.find(text, table)
    reference = announced.reference if announced else str(configured.get("build", text))
    named = text if configured or announced else ""
    if announced and announced.requirement:
        return SubjectSpec(alias=_alias(alias or named), reference=reference, requirements=(announced.requirement, *wanted))
    place, _, name = reference.partition(":")
    library = LIBRARIES.get(place)
    if library is not None and name:
        roots = (config.project,) if place == "nanochat" else ()
        return SubjectSpec(alias=_alias(alias or named or name), reference=reference, requirements=(*library, *wanted), roots=roots)
    reference, roots = _placed(reference, config.project)
    project = _project(config.project, reference, table)
    called = _alias(alias or named or _told(reference))
    return SubjectSpec(alias=called, reference=reference, requirements=(*project, *wanted), roots=roots, own=True)


def specs(
    texts: Sequence[str], config: Config, *, alias: str = "", requirements: Sequence[str] = (), uses: Sequence[str] = ()
) -> tuple[SubjectSpec, ...]:
    """The subjects that `texts` name, as `spec` says; `uses` goes over what is configured.

    Raises ConfigError for two of one alias, and for a name that its source is seen not to have.
    """
    if alias and len(texts) > 1:
        raise ConfigError("--alias is for one subject: give the others names in [tool.conformance.subjects]")
    found = tuple(
        replace(
            spec(text, config, alias=alias, requirements=requirements),
            uses=checked(uses, "--use") or checked(config.subjects.get(text, {}).get("uses", ()), f"subjects.{text}.uses") or (EAGER,),
        )
        for text in texts
    )
    for each in found:
        _check_name(each)
    by_alias: dict[str, SubjectSpec] = {}
    for each in found:
        if by_alias.setdefault(each.alias, each) is not each:
            raise ConfigError(f"{each.reference} and {by_alias[each.alias].reference} are both called {each.alias}: check them one by one")
    return found


def _check_name(subject: SubjectSpec) -> None:
    """A name that its source does not define is told before any environment is made."""
    place, _, name = subject.reference.rpartition(":") if ":" in subject.reference else (subject.reference, "", "build")
    parts = [place] if _is_file(subject.reference) else [f"{place.replace('.', '/')}{end}" for end in (".py", "/__init__.py")]
    file = next((root / part for root in subject.roots for part in parts if (root / part).is_file()), None) if subject.own else None
    names = defined(file) if file is not None else None
    first = name.partition(".")[0]
    is_part = file is not None and file.name == "__init__.py" and any(file.parent.glob(f"{first}*"))  # bound by importing it
    if names is not None and first not in names and not is_part:
        public = sorted(each for each in names if not each.startswith("_"))
        raise ConfigError(f"{file} has no {first!r}; it has {', '.join(public[:20]) or 'nothing public'}: give one as `{place}:NAME`")


def check_found(subject: SubjectSpec) -> None:
    """A module that no new environment could have is told before one is made. Raises ConfigError."""
    top = subject.reference.partition(":")[0].partition(".")[0]
    if not subject.own or subject.requirements or _is_file(subject.reference) or top in (*sys.stdlib_module_names, "torch"):
        return
    if not any((root / f"{top}{end}").exists() for root in subject.roots for end in (".py", "")):
        looked = " or ".join(map(str, subject.roots))
        raise ConfigError(
            f"there is no module {top!r} in {looked}, and no package to install that could bring it: name one by --with PACKAGE, "
            "say --here where your own environment has it, or give `path/to/file.py:build`"
        )


def _is_file(reference: str) -> bool:
    return reference.partition(":")[0].endswith(".py")


def _check_requirement(text: str) -> None:
    try:
        if Requirement(text).name.lower() == "torch":
            raise ConfigError(f"{text!r}: torch is what varies; choose releases by --torch")
    except InvalidRequirement as error:
        raise ConfigError(f"{text!r} is no requirement: {str(error).splitlines()[0]}") from error


def _alias(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"


def _told(reference: str) -> str:
    """What a reference calls its subject: the object, or its module where the object is just `build`."""
    place, _, name = reference.rpartition(":") if ":" in reference else (reference, "", "build")
    stem = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    return stem if name in ("build", "SUBJECT") else name


def _placed(reference: str, project: Path) -> tuple[str, tuple[Path, ...]]:
    """The reference with an absolute file in it, and the folders of its code. A file that is not there is an error here."""
    place, colon, name = reference.rpartition(":") if ":" in reference else (reference, "", "")
    if place.endswith(".py"):
        path = (project / place).absolute()
        if not path.is_file():
            raise ConfigError(f"there is no file {path}: a subject is `file.py:build` or `package.module:build`")
        return f"{path}{colon}{name}", (path.parent,)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", place) or (colon and not re.fullmatch(r"[A-Za-z_][\w.]*", name)):
        raise ConfigError(
            f"{reference!r} names no subject: give `package.module:build`, `file.py:build`, `transformers:LlamaModel`, `timm:resnet18`, "
            f"or one of {', '.join(BUILTIN)}"
        )
    source = project / "src"
    return reference, (source, project) if source.is_dir() else (project,)


def _project(project: Path, reference: str, table: dict[str, Any]) -> tuple[str, ...]:
    """The user's project as a requirement, installed in place, where it can be installed; a single file needs no project."""
    if _is_file(reference) or ("build-system" not in table and not (project / "setup.py").is_file()):
        return ()
    name = table.get("project", {}).get("name") or re.sub(r"[^A-Za-z0-9]+", "-", project.name).strip("-") or "project"
    return (f"{name} @ {project.as_uri()}",)


def sources(root: Path) -> list[Path]:
    """The Python files below `root`; environments and what tools leave are passed over.

    Raises ConfigError for more files than a project has: then the folder is no project's.
    """
    if root.is_file():
        return [root]
    found: list[Path] = []
    pending = [root]
    while pending:
        if len(found) > _MOST_FILES:
            raise ConfigError(f"{root} holds more than {_MOST_FILES} Python files: name a folder that holds the project alone")
        for path in sorted(pending.pop().iterdir()):
            if path.is_dir() and not path.is_symlink() and path.name not in _NO_SOURCE and not path.name.startswith("."):
                pending.append(path)
            elif path.suffix == ".py":
                found.append(path)
    return found
