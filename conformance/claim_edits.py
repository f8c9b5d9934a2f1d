"""Claims written from results: the README's badge and table, and the bound in pyproject.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from packaging.requirements import Requirement

from conformance import readme
from conformance.artifacts import write_bytes
from conformance.claims import Finding, table_lines
from conformance.requirements import torch_claims
from conformance.support import NO_RANGE, State, Table, bounds


def blocks(found: Table, devices: Sequence[str]) -> dict[str, str]:
    """What belongs between the README's markers: the `badge` for the claimed devices, the `table` for all that were measured."""
    measured = [device for device in found if any(support.state is not State.UNKNOWN for support in found[device].values())]
    return {"badge": badge(bounds(found, devices)), "table": "\n".join(table_lines(found, measured or devices))}


def badge(bound: str) -> str:
    """The badge as Markdown: an address of shields.io that holds the range itself, so that nothing has to be served."""
    message = quote(bound.replace("-", "--").replace("_", "__"), safe="")
    return f"![torch {bound}](https://img.shields.io/badge/torch-{message}-{'red' if bound in NO_RANGE else 'blue'})"


def stale_blocks(text: str, wanted: Mapping[str, str]) -> list[str]:
    """The blocks that the README has and whose content is not what the results say."""
    return [name for name, content in wanted.items() if readme.block(text, name) not in (None, content)]


def write_readme(path: Path, wanted: Mapping[str, str]) -> list[str]:
    """Write each block that the README has markers for; returns the names of those that changed."""
    text = path.read_text(encoding="utf-8")
    changed = stale_blocks(text, wanted)
    for name in changed:
        text = readme.with_block(text, name, wanted[name])
    if changed:
        write_bytes(path, text.encode())
    return changed


def write_bounds(project: Path, bound: str) -> list[str]:
    """Give each requirement of torch in pyproject.toml's `[project]` the honest range; returns what was changed, `old -> new`.

    A requirement is changed where its text stands once between quotes; nothing is written where no release is supported.
    """
    path = project / "pyproject.toml"
    if bound in NO_RANGE or not path.is_file():
        return []
    text, changed = path.read_text(encoding="utf-8"), []
    for claim in torch_claims(project):
        new = _with_bound(claim.text, bound) if claim.where.startswith("pyproject.toml [project") else claim.text
        quoted = [f"{mark}{claim.text}{mark}" for mark in "\"'"]
        places = [each for each in quoted if text.count(each) == 1]
        if new != claim.text and len(places) == 1:
            text = text.replace(places[0], f"{places[0][0]}{new}{places[0][0]}")
            changed.append(f"{claim.text} -> {new}")
    if changed:
        write_bytes(path, text.encode())
    return changed


def _with_bound(text: str, bound: str) -> str:
    requirement = Requirement(text)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f"; {requirement.marker}".replace('"', "'") if requirement.marker else ""
    return f"{requirement.name}{extras}{bound.replace(' ', '')}{marker}"


def write(project: Path, found: Table, devices: Sequence[str]) -> list[str]:
    """Write all of it; what was changed, a line each."""
    changed = [f"pyproject.toml: {change}" for change in write_bounds(project, bounds(found, devices))]
    path = readme.path_of(project)
    return changed + [f"{path.name}: {name}" for name in write_readme(path, blocks(found, devices))] if path else changed


def stale(project: Path, found: Table, devices: Sequence[str]) -> list[Finding]:
    """A finding for each block of the README that is not what the results say."""
    path = readme.path_of(project)
    if path is None:
        return []
    names = stale_blocks(path.read_text(encoding="utf-8"), blocks(found, devices))
    return [
        Finding(path.name, f"the {name} between markers", "is not what the results say; `conformance claims --write`") for name in names
    ]
