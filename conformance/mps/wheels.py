"""The wheels of a torch release, found by uv in the configured index and read in pieces: a part of a wheel never costs the whole."""

from __future__ import annotations

import io
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance import interpreters, tomlfiles
from conformance.errors import ConformanceError

#: Bytes that one request asks for at least: members that lie beside each other come together.
_PIECE = 4 << 20
#: uv's exit code where it could not do its work, as without a network; 1 means that no version fits.
_UV_FAILED = 2


class WheelError(ConformanceError):
    """A release has no such wheel, or its index gives no parts of files."""

    exit_code = 4


class UnreachableError(WheelError):
    """The configured index cannot be reached."""


def find(release: str, python: str, platform: str) -> str:
    """The address of torch's wheel of `release` whose file name has `platform` (a regular expression) in it.

    uv answers, so its own settings say which index is asked. Raises WheelError, UnreachableError without a network, with uv's words.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, lock = Path(folder) / "wanted.in", Path(folder) / "pylock.toml"
        wanted.write_text(f"torch=={release}\n", encoding="utf-8")
        command = [interpreters.uv(), "pip", "compile", str(wanted), "--no-deps", "--universal", "--quiet"]
        command += ["--python-version", python, "--format", "pylock.toml", "--output-file", str(lock)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            kind = UnreachableError if done.returncode == _UV_FAILED else WheelError
            raise kind(f"torch {release}: uv finds no wheel: {done.stderr.strip()[-500:]}")
        package = tomlfiles.read(lock)["packages"][0]
    listed = [wheel.get("url") or Path(wheel["path"]).absolute().as_uri() for wheel in package.get("wheels", ())]
    fitting = sorted(url for url in listed if re.search(platform, url.rpartition("/")[2]))
    if not fitting:
        raise WheelError(f"torch {release} has no wheel for {platform}; it has {len(listed)} others")
    return fitting[0]


@contextmanager
def opened(url: str) -> Iterator[zipfile.ZipFile]:
    """The wheel at `url` as a zip file whose members are fetched when they are read. Raises UnreachableError where it cannot be reached."""
    try:
        with _Pieces(url) as raw, zipfile.ZipFile(io.BufferedReader(raw, _PIECE)) as wheel:
            yield wheel
    except urllib.error.URLError as error:
        raise UnreachableError(f"{url.rpartition('/')[2]}: the index cannot be reached: {error.reason}") from error


class _Pieces(io.RawIOBase):
    """A file behind an address, read by ranges of bytes. Raises WheelError where the server gives no ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        path = Path(urllib.request.url2pathname(url.removeprefix("file://")))
        self._local = path.open("rb") if url.startswith("file:") else None
        self._size = self._local.seek(0, io.SEEK_END) if self._local else self._length()

    def _length(self) -> int:
        with urllib.request.urlopen(urllib.request.Request(self._url, method="HEAD"), timeout=60) as answer:
            return int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        found = self._fetched(wanted)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _fetched(self, count: int) -> bytes:
        if self._local:
            self._local.seek(self._at)
            return self._local.read(count)
        asked = urllib.request.Request(self._url, headers={"Range": f"bytes={self._at}-{self._at + count - 1}"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            if answer.status != 206:
                raise WheelError(f"{self._url.rpartition('/')[2]}: its server gives no ranges of bytes; let uv use another index")
            return answer.read()  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._local:
            self._local.close()
        super().close()
