"""README: what its badges and tables claim of releases and devices, and the blocks between markers that are written from results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.config import DEVICES
from conformance.errors import ConfigError
from conformance.tomlfiles import pyproject

_BADGE = re.compile(r"img\.shields\.io/badge/((?:[^-\s)\"]|--)+)-((?:[^-\s)\"]|--)+)-")
_YES = re.compile(r"\s*(?:✓|✔|✅|☑|yes\b|supported\b|ok\b)", re.IGNORECASE)
_TORCH = re.compile(r"\W*(?:py)?torch|\W*release|\W*version", re.IGNORECASE)
_DASHES = "\N{EN DASH}\N{EM DASH}\N{HORIZONTAL ELLIPSIS}"
_NAMES = {**{device: device for device in DEVICES}, "gpu": "cuda", "rocm": "cuda", "tpu": "xla", "apple": "mps"}


@dataclass(frozen=True)
class Stated:
    """One claim of a README: releases (None: none are named), the device ("" : none is named), and the line.

    `written` is one that stands in the table between our markers: it holds for itself, and does not make its device one that all other
    claims must hold on.
    """

    text: str
    specifier: SpecifierSet | None
    device: str
    where: str
    written: bool = False


def path_of(project: Path) -> Path | None:
    """The README that the project names, or has; None where there is none."""
    named = pyproject(project).get("project", {}).get("readme", "README.md")
    name = named.get("file", "README.md") if isinstance(named, dict) else named
    path = project / str(name)
    return path if path.is_file() else None


def stated(path: Path) -> list[Stated]:
    """What the badges and the tables of a Markdown file claim: a table by its heads (devices), its first column (releases) and a yes."""
    found: list[Stated] = []
    devices: list[str] = []
    fenced = written = False
    start, end = _markers("table")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if fenced:
            continue
        written = start in line or (written and end not in line)
        where = f"{path.name}:{number}"
        found += _badges(line, where)
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        if not cells:
            devices = []
        elif not devices and _TORCH.match(cells[0]):
            devices = [device_named(cell) for cell in cells[1:]]
        elif any(devices):
            found += (replace(each, written=written) for each in _row(cells, devices, where))
    return found


def device_named(text: str) -> str:
    """The device that the first word of a text names, as `CUDA 12`; empty where it names none."""
    word = re.match(r"\W*([A-Za-z]+)", text)
    return _NAMES.get(word.group(1).lower(), "") if word else ""


def _row(cells: list[str], devices: list[str], where: str) -> Iterator[Stated]:
    for device, cell in zip(devices, cells[1:]):
        if device and _YES.match(cell):
            for specifier in releases_named(cells[0]):
                yield Stated(f"{cells[0]} on {device}", specifier, device, where)


def _badges(line: str, where: str) -> Iterator[Stated]:
    for label, message in _BADGE.findall(line):
        name, text = (_unescaped(part) for part in (label, message))
        if re.fullmatch(r"(py)?torch", name.strip(), re.IGNORECASE):
            for specifier in releases_named(text):
                yield Stated(f"badge {name}: {text}", specifier, "", where)
        elif re.match(r"(device|backend|accelerator)s?\b", name, re.IGNORECASE):
            for device in filter(None, map(device_named, re.split(r"[|,/]", text))):
                yield Stated(f"badge {name}: {text}", None, device, where)


def _unescaped(text: str) -> str:
    """The text of a part of a badge's address: shields.io writes `--` for a dash and `_` for a blank."""
    return re.sub(r"(?<!_)_(?!_)", " ", unquote(text)).replace("--", "-").replace("__", "_")


def releases_named(text: str) -> list[SpecifierSet]:
    """The releases that people write as `2.4`, `2.4+`, `≥2.4`, `>=2.4,<2.6`, `2.4 to 2.6` or `2.1 | 2.2`; none for other text."""
    plain = re.sub(r"(?:py)?torch|[`*\s]", "", text.replace("≥", ">=").replace("≤", "<="), flags=re.IGNORECASE)
    return [specifier for part in plain.split("|") if (specifier := _specifier(part)) is not None]


def _specifier(text: str) -> SpecifierSet | None:
    span = re.fullmatch(rf"v?(\d[\d.]*)(?:to|[-{_DASHES}]|\.\.)v?(\d[\d.]*)", text)
    single = re.fullmatch(r"v?(\d[\d.]*)(\+?)", text)
    if span:
        text = f">={span[1]},{_up_to(span[2])}"
    elif single:
        text = f">={single[1]}" if single[2] else f"=={single[1]}" + (".*" if single[1].count(".") < 2 else "")
    try:
        return SpecifierSet(text) if text else None
    except InvalidSpecifier:
        return None


def _up_to(release: str) -> str:
    """`2.6` includes 2.6.1, as people mean it."""
    major, *rest = release.split(".")
    return f"<{major}.{int(rest[0]) + 1}" if len(rest) == 1 and rest[0] else f"<={release}"


def block(text: str, name: str) -> str | None:
    """What stands between the markers of that name; None where there are none. Raises ConfigError for a marker without its end."""
    start, end = _markers(name)
    _, found, rest = text.partition(start)
    if not found:
        return None
    inner, closed, _ = rest.partition(end)
    if not closed:
        raise ConfigError(f"README: {start} has no {end} after it")
    return inner.strip("\n")


def with_block(text: str, name: str, content: str) -> str:
    """The text with `content` between the markers of that name; as it is where there are no such markers."""
    if block(text, name) is None:
        return text
    start, end = _markers(name)
    head, _, rest = text.partition(start)
    return f"{head}{start}\n{content}\n{end}{rest.partition(end)[2]}"


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- conformance {name} -->", f"<!-- /conformance {name} -->"
