"""Results are published: machine paths become placeholders, and user, host and index names are taken out."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: Names that say nothing about a person or machine, and are ordinary words in a traceback.
_COMMON = frozenset(
    {"root", "user", "runner", "admin", "ubuntu", "build", "localhost", "home", "python", "torch", "test", "tests", "debian"}
)
_URL = re.compile(r"\b(?:https?|ftp|file)://[^\s`'\"<>)\]}]+")
_INDEX_VARIABLES = (
    *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"),
)


def process_roots() -> dict[str, str]:
    """Placeholder -> path for the interpreter and environment that run now, the home and the temporary folder."""
    return {
        "<env>": sys.prefix,
        "<python>": sys.base_prefix,
        "<stdlib>": sysconfig.get_paths()["stdlib"],
        "<home>": str(Path.home()),
        "<tmp>": tempfile.gettempdir(),
    }


def private_names() -> list[str]:
    """The user's and host's names and the package indexes of this machine, as far as they tell anything."""
    names = [socket.gethostname(), os.environ.get("HOSTNAME", ""), os.environ.get("USER", ""), os.environ.get("LOGNAME", "")]
    with contextlib.suppress(KeyError, OSError, ImportError):  # no entry for this user id, as in some containers: no name to hide
        names.append(getpass.getuser())
    for variable in _INDEX_VARIABLES:
        names.extend(re.split(r"[\s,]+", os.environ.get(variable, "")))
    return [name for name in names if len(name) > 1 and name.lower() not in _COMMON]


class Scrubber:
    """Replaces paths by placeholders and private names by `<private>`; longest first, so that inner roots win."""

    def __init__(self, roots: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        paths = {form: placeholder for placeholder, root in roots.items() for form in _forms(root)}
        self._paths = paths
        ordered = sorted(paths, key=len, reverse=True)
        self._path_pattern = re.compile("|".join(rf"{re.escape(path)}(?![\w.-])" for path in ordered)) if ordered else None
        names = sorted({name for name in secrets if len(name) > 1 and name.lower() not in _COMMON}, key=len, reverse=True)
        self._name_pattern = re.compile("|".join(_name_regex(name) for name in names)) if names else None

    def text(self, text: str) -> str:
        """`text` without paths and names of this machine, and without characters that UTF-8 cannot hold."""
        if self._name_pattern is not None:
            text = self._name_pattern.sub("<private>", text)
        if self._path_pattern is not None:
            text = self._path_pattern.sub(lambda match: self._paths[match.group()], text)
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def urls(self, text: str) -> str:
        """`text` with every address taken out as well: what an installer prints names the index."""
        return self.text(_URL.sub("<index>", text))

    def tree(self, value: Any) -> Any:
        """`value`, a tree of JSON types, with every text in it scrubbed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.tree(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(inner) for inner in value]
        return value


def _forms(root: str) -> set[str]:
    """A root as it is written and as links resolve it; the file system's own root is no secret."""
    return {form for form in (root.rstrip("/"), os.path.realpath(root).rstrip("/")) if len(form) > 1} if root else set()


def _name_regex(name: str) -> str:
    left = r"(?<![\w])" if name[0].isalnum() else ""
    right = r"(?![\w])" if name[-1].isalnum() else ""
    return f"{left}{re.escape(name)}{right}"
