"""Artifacts: texts that a case keeps beside its record, a program that did not compile and the command that shows it."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile

from conformance.incell.scrub import Scrubber

#: The folder in a cell's results that holds them.
FOLDER = "artifacts"


class Artifacts:
    """Writes the artifacts of one case to `<root>/<case>/`; by hand, where nobody gave a root, to a temporary folder."""

    def __init__(self, root: str, case: str, scrub: Scrubber | None) -> None:
        digest = hashlib.sha256(case.encode()).hexdigest()[:6]
        self._name = f"{re.sub(r'[^A-Za-z0-9._]+', '-', case).strip('-')[:80]}-{digest}"
        self._root, self._scrub = root, scrub

    def keep(self, name: str, text: str) -> str:
        """Write `text`, without names of this machine, as the file `name`; returns its path relative to the cell's folder."""
        self._root = self._root or tempfile.mkdtemp(prefix="artifacts-")
        folder = os.path.join(self._root, self._name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(self._scrub.text(text) if self._scrub is not None else text)
        return f"{FOLDER}/{self._name}/{name}"
