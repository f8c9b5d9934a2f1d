"""The cell: one release x Python x device x platform, and the id that names it everywhere."""

from __future__ import annotations

import platform as host_platform
import re
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

_ID = re.compile(
    r"torch(?P<torch>[a-z0-9._]+)-py(?P<python>\d+\.\d+t?)-(?P<device>[a-z0-9]+)-(?P<platform>[a-z0-9_]+)(?:-(?P<tag>[a-z0-9._]+))?"
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One column of the matrix. `str(cell)` is its id, as `torch2.4.1-py3.11-cpu-linux_x86_64`; `Cell.parse` reads it back."""

    torch: str
    python: str
    device: str
    platform: str
    tag: str = ""

    def __post_init__(self) -> None:
        match = _ID.fullmatch(str(self))
        if match is None or Cell._fields(match) != (self.torch, self.python, self.device, self.platform, self.tag):
            msg = f"{str(self)!r} is no cell id: torchVERSION-pyX.Y-DEVICE-PLATFORM[-TAG] in the characters a-z 0-9 . _"
            raise ValueError(msg)
        try:
            Version(self.torch)
        except InvalidVersion as error:
            raise ValueError(f"{self.torch!r} in cell {self} is no version") from error

    def __str__(self) -> str:
        tag = f"-{self.tag}" if self.tag else ""
        return f"torch{self.torch}-py{self.python}-{self.device}-{self.platform}{tag}"

    @staticmethod
    def _fields(match: re.Match[str]) -> tuple[str, str, str, str, str]:
        found = match.groupdict()
        return found["torch"], found["python"], found["device"], found["platform"], found["tag"] or ""

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell that `text` names; raises ValueError when it is no cell id."""
        match = _ID.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no cell id: torchVERSION-pyX.Y-DEVICE-PLATFORM[-TAG], as torch2.4.1-py3.11-cpu-linux_x86_64")
        torch, python, device, platform, tag = cls._fields(match)
        return cls(torch=torch, python=python, device=device, platform=platform, tag=tag)

    @property
    def version(self) -> Version:
        """The torch release as a version that compares: 2.10 comes after 2.9."""
        return Version(self.torch)

    @property
    def sort_key(self) -> tuple[str, str, str, Version, str]:
        """Device and platform first, so that releases stand side by side."""
        return (self.device, self.platform, self.tag, self.version, self.python)


def this_platform() -> str:
    """The platform field of cells that run on this machine, as `linux_x86_64` or `macos_arm64`."""
    system = {"Darwin": "macos"}.get(host_platform.system(), host_platform.system().lower())
    machine = {"amd64": "x86_64"}.get(host_platform.machine().lower(), host_platform.machine().lower())
    return f"{system}_{machine}"
