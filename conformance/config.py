"""The configuration's types: what a run is told. `configfile.load` reads them from TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent
DEVICES = ("cpu", "cuda", "mps", "xla", "xpu", "meta")
INDEXES = ("auto", "pytorch", "pypi")
DEPTHS = ("default", "deep")


@dataclass(frozen=True, kw_only=True)
class Release:
    """One torch release: where it comes from and what goes with it."""

    version: str
    python: str
    pins: tuple[str, ...] = ()
    #: A local wheel in place of the index.
    wheel: str = ""
    #: An index of its own, as for nightlies.
    index_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kind of machine and device, and the releases that are planned on it."""

    platform: str
    device: str
    runs_on: str = ""
    releases: str = ""
    pins: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    tag: str = ""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package of requirement sets: the version that is taken, and where it can be had."""

    name: str
    version: str
    python: str = ""
    #: Empty: on all.
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one case, one process and one install may take."""

    timeout_s: float
    memory_mb: int
    output_mb: int
    install_s: float
    free_disk_gb: float | None


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run is told. Paths are absolute."""

    project: Path
    source: str
    profile: str
    depth: str
    devices: tuple[str, ...]
    families: tuple[str, ...]
    cases: tuple[Path, ...]
    expectations: tuple[Path, ...]
    reports: Path
    environments: Path
    index: str
    pytorch_index_url: str
    python_downloads: bool
    seed: int
    workers: int | None
    threads: int
    limits: Limits
    #: The share of a family's cases that may change between passing and not before a column is held back from publication.
    publish_swing: float
    #: The user's models by alias, each with `build` and `requirements`.
    subjects: dict[str, dict[str, Any]]
    #: Claims that are measured by something else, each with what that is.
    elsewhere: dict[str, str]
    releases: dict[str, Release]
    profiles: dict[str, tuple[str, ...]]
    targets: tuple[Target, ...]
    packages: dict[str, Package]
    #: Profile -> the families that it plans on its newest release alone.
    newest_only: dict[str, tuple[str, ...]]
    #: Families that a check of a model leaves out where nobody names them.
    on_request: tuple[str, ...] = ()


def builtin_cases() -> Path:
    """The folder of the cases that ship with the tool: inside an installed package, or beside it in a checkout."""
    inside = _PACKAGE / "cases"
    return inside if inside.is_dir() else _PACKAGE.parent / "cases"
