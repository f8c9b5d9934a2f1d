"""The plan: which cells and which case files a run is about, and why the others are not. Needs neither torch nor an environment."""

from __future__ import annotations

import ast
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance import __version__, selectors
from conformance.cells import Cell, this_platform
from conformance.config import DEVICES, Config, Release, Target, builtin_cases
from conformance.errors import ConfigError, NothingSelectedError
from conformance.incell.identity import stem_of
from conformance.subjectspecs import SubjectSpec

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the user asked for on top of the configuration. Empty means: as configured."""

    profile: str = ""
    torch: str = ""
    devices: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    depth: str = ""
    platform: str = ""
    #: The user's models: where there are any, the checks run on them and nothing else runs.
    subjects: tuple[SubjectSpec, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """A cell with what its environment needs."""

    cell: Cell
    release: Release
    target: Target
    #: Whether the device was asked for by name: then a probe that fails is an error, else the device is just not there.
    named: bool
    #: Families that are not planned here, since the profile plans them on its newest release alone.
    without: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The cell as plan.json and `plan --json` give it."""
        return {
            "cell": str(self.cell),
            "torch": self.cell.torch,
            "python": self.cell.python,
            "device": self.cell.device,
            "platform": self.cell.platform,
            "runs_on": self.target.runs_on,
        }


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """A file of cases. `case` is the id that stands for the file where its cases are not known."""

    family: str
    path: Path
    root: Path
    case: str

    def as_json(self) -> dict[str, Any]:
        """The file as plan.json gives it, its path below the case root."""
        return {"family": self.family, "file": self.path.relative_to(self.root).as_posix(), "case": self.case}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is about."""

    cells: tuple[PlannedCell, ...]
    files: tuple[CaseFile, ...]
    selection: Selection
    depth: str
    excluded: tuple[tuple[str, str], ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """The content of plan.json: equal plans give equal bytes."""
        return {
            "schema": SCHEMA,
            "tool": __version__,
            "depth": self.depth,
            "selected_cases": list(self.selection.cases),
            "subjects": [subject.alias for subject in self.selection.subjects],
            "cells": [cell.as_json() for cell in self.cells],
            "files": [file.as_json() for file in self.files],
        }


def make(config: Config, selection: Selection) -> Plan:
    """The plan of a selection. Raises ConfigError for a selector that matches nothing, NothingSelectedError for an empty plan."""
    files = case_files(config, selection)
    chosen, excluded = cells(config, selection)
    if not files:
        raise NothingSelectedError(f"no case file belongs to the families {', '.join(selection.families or config.families)}")
    depth = selection.depth or config.depth
    return Plan(cells=tuple(chosen), files=tuple(files), selection=selection, depth=depth, excluded=tuple(excluded))


def cells(config: Config, selection: Selection) -> tuple[list[PlannedCell], list[tuple[str, str]]]:
    """The cells of a selection, and those that are out with the reason; no case is asked for. Raises as `make` does."""
    included, excluded = _cells(config, selection)
    chosen = [replace(cell, without=_without(config, selection, cell)) for cell in _narrowed(included, selection)]
    if not chosen:
        raise NothingSelectedError(_why_nothing(excluded))
    left = {str(cell.cell) for cell in chosen}
    gone = [(str(cell.cell), "not selected by --only or --skip") for cell in included if str(cell.cell) not in left]
    return chosen, [*excluded, *gone]


def _without(config: Config, selection: Selection, planned: PlannedCell) -> tuple[str, ...]:
    """The families that a cell of the profile leaves to the profile's newest release, where nobody asked for them.

    A cell that is named belongs to no profile but the one that is named with it: whoever deals out the cells of a plan may have another.
    """
    profile = selection.profile or ("" if selection.cells else config.profile)
    members = sorted(config.profiles[profile], key=Version) if profile in config.profiles else []
    asked = selection.families or selection.cases or selection.subjects or selection.torch
    if asked or planned.release.version not in members[:-1]:
        return ()
    return config.newest_only.get(profile, ())


def _why_nothing(excluded: list[tuple[str, str]]) -> str:
    """The cells that came closest to the plan, with what keeps them out: not those of other releases and platforms."""
    close = [(cell, why) for cell, why in excluded if not why.startswith(("release not in", "for "))] or excluded
    reasons = "".join(f"\n  {cell}: {why}" for cell, why in close[:12])
    more = f"\n  ... and {len(close) - 12} more: `conformance plan --explain`" if len(close) > 12 else ""
    return f"nothing is selected; these cells are out:{reasons}{more}" if close else "nothing is selected"


def _cells(config: Config, selection: Selection) -> tuple[list[PlannedCell], list[tuple[str, str]]]:
    """Every pair of release and target: planned, or out with the reason."""
    platform = selection.platform or this_platform()
    asked = selection.devices or config.devices
    devices = asked if selection.devices else (*asked, *_devices_of(selection.cells))
    wanted = _releases(config, selection)
    included: list[PlannedCell] = []
    excluded: list[tuple[str, str]] = []
    for target in config.targets:
        for version in sorted(config.releases.values(), key=lambda release: _cell(release, target).version):
            why = _why_not(version, target, platform, devices, wanted, named_releases=bool(selection.torch))
            if why:
                excluded.append((str(_cell(version, target)), why))
            else:
                named = target.device in devices
                included.append(PlannedCell(cell=_cell(version, target), release=version, target=target, named=named))
    _check_devices(config, asked, platform)
    twice = [cell for cell, times in Counter(str(planned.cell) for planned in included).items() if times > 1]
    if twice:
        raise ConfigError(f"two targets make the cell {twice[0]}: give one of them a tag, or narrow its releases")
    return sorted(included, key=lambda planned: planned.cell.sort_key), excluded


def _devices_of(cells: tuple[str, ...]) -> list[str]:
    """The devices of the cells that are named by their id: who names a cell asks for its device."""
    found = []
    for selected in cells:
        with suppress(ValueError):  # a glob
            found.append(Cell.parse(selected).device)
    return found


def _releases(config: Config, selection: Selection) -> set[str]:
    if selection.torch:
        return set(selectors.select_releases(selection.torch, config.releases))
    if selection.cells:
        return set(config.releases)
    return set(releases_of(config, selection.profile or config.profile))


def releases_of(config: Config, profile: str) -> tuple[str, ...]:
    """The releases of a profile. Raises ConfigError for one that is not configured."""
    if profile not in config.profiles:
        raise ConfigError(f"--profile {profile!r} is not known{selectors.close_matches(profile, list(config.profiles))}")
    return config.profiles[profile]


def _cell(release: Release, target: Target) -> Cell:
    try:
        return Cell(torch=release.version, python=release.python, device=target.device, platform=target.platform, tag=target.tag)
    except ValueError as error:
        raise ConfigError(f"release {release.version} on target {target.platform} {target.device}: {error}") from error


def _why_not(release: Release, target: Target, platform: str, devices: tuple[str, ...], wanted: set[str], *, named_releases: bool) -> str:
    if platform not in ("all", target.platform):
        return f"for {target.platform}, not {platform}"
    if release.version not in wanted:
        return "release not in --torch" if named_releases else "release not in the profile"
    if target.releases and not SpecifierSet(target.releases, prereleases=True).contains(release.version):
        return f"the target takes releases {target.releases}"
    if target.device not in devices and "auto" not in devices:
        return f"device {target.device} is not asked for"
    if platform == "all":
        return "" if target.runs_on else "no runner label is configured for this target"
    if target.device in devices:
        return ""
    return "" if device_hint(target.device) else f"no sign of a {target.device} device here; ask for it by --device {target.device}"


def _check_devices(config: Config, devices: tuple[str, ...], platform: str) -> None:
    for device in devices:
        if device == "auto":
            continue
        if device not in DEVICES:
            raise ConfigError(f"--device {device!r} is not known{selectors.close_matches(device, DEVICES)}")
        if not any(target.device == device and platform in ("all", target.platform) for target in config.targets):
            raise ConfigError(f"--device {device}: no target for it on {platform}; add one under [[tool.conformance.targets]]")


def device_hint(device: str) -> bool:
    """Whether this machine seems to have the device, told without torch. The probe in the cell decides."""
    hints = {
        "cuda": lambda: Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None,
        "mps": lambda: this_platform() == "macos_arm64",
        "xpu": lambda: shutil.which("xpu-smi") is not None,
    }
    return hints[device]() if device in hints else True


def _narrowed(cells: list[PlannedCell], selection: Selection) -> list[PlannedCell]:
    ids = [str(planned.cell) for planned in cells]
    kept = set(selectors.select(selection.cells, ids, "cell")) if selection.cells else set(ids)
    if selection.skip:
        kept -= set(selectors.select(selection.skip, ids, "cell"))
    return [planned for planned in cells if str(planned.cell) in kept]


def case_files(config: Config, selection: Selection) -> list[CaseFile]:
    """The files of the selected families and cases. Raises ConfigError for what matches nothing."""
    known = list(dict.fromkeys([*config.families, "user"] if config.cases else config.families))
    unasked = config.on_request if selection.subjects and not selection.cases else ()
    left = [family for family in known if family not in unasked]
    families = selectors.select(selection.families, known, "family") if selection.families else left
    files = [file for family in families if family != "user" for file in _family_files(builtin_cases(), family)]
    if "user" in families:
        files += [file for root in config.cases for file in _user_files(root)]
    _refuse_equal_ids(files)
    if selection.subjects:
        files = [file for file in files if _has_checks(file)]
    return _with_case(files, selection.cases) if selection.cases else files


def _has_checks(file: CaseFile) -> bool:
    """Whether a file has a case that holds for any subject: one that wears `@subjects()`."""
    return "@subjects()" in file.path.read_text(encoding="utf-8")


def _refuse_equal_ids(files: list[CaseFile]) -> None:
    """A file is known by its id where its cases are not: two files of one id could not be told apart."""
    first: dict[str, CaseFile] = {}
    for file in files:
        other = first.setdefault(file.case, file)
        if other is not file:
            raise ConfigError(f"two case files have the id {file.case}: {other.path} and {file.path}; rename one of them")


def _family_files(root: Path, family: str) -> Iterator[CaseFile]:
    for path in sorted((root / family).glob("**/test_*.py")):
        yield CaseFile(family=family, path=path, root=root, case=f"{family}.{stem_of(str(path))}")


def control_files() -> list[CaseFile]:
    """The files of the controls, which run in every cell."""
    return list(_family_files(builtin_cases(), "control"))


def _user_files(root: Path) -> Iterator[CaseFile]:
    paths = sorted(root.glob("**/test_*.py")) if root.is_dir() else [root]
    base = root if root.is_dir() else root.parent
    for path in paths:
        yield CaseFile(family="user", path=path, root=base, case=f"user.{stem_of(str(path))}")


def _with_case(files: list[CaseFile], patterns: tuple[str, ...]) -> list[CaseFile]:
    """The files that can hold a selected case, read from their source. A pattern that fits no function is an error."""
    names = {file: case_names(file) for file in files}
    known = [name for inner in names.values() for name in inner]
    for pattern in patterns:
        if not any(_may_match(pattern, name) for name in known):
            raise ConfigError(f"no case matches {pattern!r}{selectors.close_matches(pattern, known)}")
    return [file for file, inner in names.items() if any(_may_match(pattern, name) for pattern in patterns for name in inner)]


def _may_match(pattern: str, name: str) -> bool:
    """Whether a pattern can match some parametrization of the case function `family.name`."""
    return any(selectors.matches(one.partition("[")[0], name) for one in selectors.expand_braces(pattern))


def case_names(file: CaseFile) -> list[str]:
    """The ids of a file's case functions, without brackets, read from its source; the file's own id where it cannot be parsed."""
    try:
        tree = ast.parse(file.path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return [file.case]
    return list(_names_in(tree.body, f"{file.family}."))


def _names_in(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    """The ids of the case functions of a module's or class's body, as incell/identity.py makes them."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _names_in(node.body, f"{prefix}{node.name.removeprefix('Test') or node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            yield prefix + node.name.removeprefix("test_")
