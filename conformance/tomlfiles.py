"""TOML files, read whole; what is wrong with one is told with its path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from conformance.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(path: Path) -> dict[str, Any]:
    """The table that the file holds. Raises ConfigError where it cannot be read, or is no TOML."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return table


def pyproject(project: Path) -> dict[str, Any]:
    """The pyproject.toml of the project in that folder; an empty table where there is none."""
    path = project / "pyproject.toml"
    return read(path) if path.is_file() else {}
