"""The environment at hand, in place of new ones: for builds that no index has."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from conformance.cells import Cell, this_platform
from conformance.config import Config, Release
from conformance.environments import Environments, freeze
from conformance.environmentspecs import Environment, Request
from conformance.errors import InstallError, NoEnvironmentError
from conformance.plan import PlannedCell, Selection


class AtHand(Environments):
    """The environment that runs this command. Nothing is installed."""

    def provide(self, request: Request) -> Environment:
        """This environment, for the cell whose torch and Python it has, and for each of its requirement sets. Raises InstallError."""
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        try:
            found = Version(importlib.metadata.version("torch"))
            importlib.metadata.version("pytest")
        except importlib.metadata.PackageNotFoundError as error:
            raise InstallError(f"--here: this environment has no {error.name}") from error
        if (found.base_version, here) != (Version(request.torch).base_version, request.python):
            raise InstallError(
                f"--here: this environment has torch {found} and Python {here}, the cell wants {request.torch} and {request.python}"
            )
        path = Path(sys.prefix)
        return Environment(request=request, path=path, lock=freeze(path), own=False)

    def lack(self, planned: PlannedCell, requirements: Sequence[str]) -> str:
        """Nothing is installed here: the cell says itself what is not there."""
        return ""

    def drop(self, environment: Environment) -> None:
        """The user's own environment stays."""

    def _backend(self, planned: PlannedCell) -> str:
        return ""


def here(config: Config, selection: Selection) -> tuple[Config, Selection]:
    """The configuration and the selection of the environment that runs this: its torch, its Python, and the devices asked for.

    Raises NoEnvironmentError where there is no torch.
    """
    try:
        torch = Version(importlib.metadata.version("torch")).base_version
    except importlib.metadata.PackageNotFoundError as error:
        raise NoEnvironmentError("--here: this environment has no torch") from error
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    devices = tuple(device for device in selection.devices if device != "auto") or ("cpu",)
    cells = tuple(str(Cell(torch=torch, python=python, device=device, platform=this_platform())) for device in devices)
    own = Release(version=torch, python=python)
    targets = tuple(replace(target, releases="", pins=()) for target in config.targets)
    wanted = replace(selection, torch=torch, devices=devices, cells=cells, profile="")
    return replace(config, releases={**config.releases, torch: own}, targets=targets), wanted
