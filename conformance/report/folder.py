"""The site's folder: replaced as a whole, so that no page of an earlier report is left in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def write(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    """Puts `files`, each an address and a text, into `folder` in place of all that it held; a failure on the way leaves it as it was."""
    fresh, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    made: set[Path] = set()
    for address, text in files:
        path = fresh / address
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        path.write_bytes(text.encode())
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
