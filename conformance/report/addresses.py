"""Where each page lies in the site: file names that hold for any id, however hostile, and stay the same from run to run."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlencode

#: Pages of which there is one.
FRONT, OVERVIEW, SEARCH, GUARDS, BITS, MODELS, DEVIATIONS, ENVIRONMENTS, OPERATORS, LOWERING = (
    "index.html", "overview.html", "search.html", "guards.html", "bits.html", "models.html", "deviations.html", "environments.html",
    "operators.html", "lowering.html",
)  # fmt: skip
_LONGEST = 80


def slug(name: str) -> str:
    """`name` in the characters a-z 0-9 . _ -; what had to be changed to get there ends in a digest of the name."""
    plain = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.")[:_LONGEST]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}".lstrip("-")


def case(name: str) -> str:
    """The page of one case."""
    return f"cases/{slug(name)}.html"


def script(name: str) -> str:
    """The script that shows what one case shows, with plain Python and torch."""
    return f"scripts/{slug(name)}.py"


def fragment(name: str) -> str:
    """The fragment of one case, for an iframe."""
    return f"fragments/{slug(name)}.html"


def part(page: str, number: int) -> str:
    """A page that is split, or a further part of it."""
    return page if number == 1 else f"{page.removesuffix('.html')}--{number}.html"


def family(name: str, number: int = 1) -> str:
    """The page of one family, or a further part of it."""
    return part(f"families/{slug(name)}.html", number)


def filtered(page: str, rows: str, release: str, device: str) -> str:
    """A page of a table with its filter set: the cases that came to `rows` on one release and device."""
    return f"{page}#{urlencode({'rows': rows, 'at': release, 'on': device})}"


def subject(name: str, number: int = 1) -> str:
    """The page of one model, or a further part of it."""
    return part(f"subjects/{slug(name)}.html", number)


def release(version: str, number: int = 1) -> str:
    """The page of what one release changed, or a further part of it."""
    return part(f"releases/{slug(version)}.html", number)


def source(file_case: str) -> str:
    """The page of one file of cases, known by its `family.stem`."""
    return f"sources/{slug(file_case)}.html"


def guard(name: str) -> str:
    """The part of the page of guards that is about one of them."""
    return f"{GUARDS}#{slug(name)}"


def operator(name: str) -> str:
    """The row of one operator in the page of operators on MPS."""
    return f"{OPERATORS}#{slug(name)}"


def environment(cell: object) -> str:
    """The row of one cell in the page of environments."""
    return f"{ENVIRONMENTS}#{slug(str(cell))}"
