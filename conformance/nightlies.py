"""Nightlies: what a package index has of them between two releases. PyTorch's own keeps about two months."""

from __future__ import annotations

import urllib.error
import urllib.request
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from conformance.config import Config, Release
from conformance.errors import InstallError

#: Device -> the folder of PyTorch's nightly index that has builds for it.
FOLDERS = {"cpu": "cpu", "meta": "cpu", "mps": "cpu"}
_SYSTEMS = {"linux": ("manylinux", "linux"), "macos": ("macosx",)}


def index_of(config: Config, device: str) -> str:
    """The address of the index of nightlies for a device. Raises InstallError where none is known."""
    if device not in FOLDERS:
        raise InstallError(f"no index of nightlies is known for {device}; add them as releases with an index-url of their own")
    return f"{config.pytorch_index_url.rstrip('/')}/nightly/{FOLDERS[device]}"


def between(config: Config, device: str, platform: str, before: Version, after: Version | None, like: Release) -> dict[str, Release]:
    """The nightlies after `before` and before `after` (None: all newer ones) that run on the platform with the Python of `like`.

    Raises InstallError where the index does not answer.
    """
    index = index_of(config, device)
    versions = {version for name in _files(f"{index}/torch/") if (version := _version(name, platform, like.python)) is not None}
    wanted = sorted(version for version in versions if version > before and (after is None or version < after))
    return {str(each): Release(version=str(each), python=like.python, pins=like.pins, index_url=index) for each in wanted}


def _version(name: str, platform: str, python: str) -> Version | None:
    """The public version of a wheel of torch that is a nightly and fits; None for any other file."""
    try:
        package, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return None
    system, _, machine = platform.partition("_")
    fits = any(
        tag.interpreter == f"cp{python.replace('.', '')}" and tag.platform.startswith(_SYSTEMS[system]) and tag.platform.endswith(machine)
        for tag in tags
    )
    return Version(version.public) if package == "torch" and version.is_devrelease and fits else None


def _files(url: str) -> list[str]:
    """The names of the files that a page of a simple index lists."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            text = answer.read().decode("utf-8", "replace")
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise InstallError(f"the index of nightlies does not answer: {getattr(error, 'reason', error)}") from error
    page = _Links()
    page.feed(text)
    return [unquote(urljoin(url, link)).partition("#")[0].rpartition("/")[2] for link in page.links]


class _Links(HTMLParser):
    """The addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where an anchor leads."""
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]
