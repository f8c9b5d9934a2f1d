"""The page of environments: what each column was measured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.columns import Column
from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.view import View

#: The heads of the table; `facts` gives a text for each.
HEADS = ("torch build", "Python", "OS", "CPU", "device", "numpy", "controls", "measured")


@dataclass(frozen=True)
class Environment:
    """What one column is: a text for each of HEADS, and the packages of each requirement set."""

    cell: str
    note: str
    facts: list[str]
    freezes: list[tuple[str, str]]


def environment_page(view: View) -> str:
    """The HTML of the page."""
    newest = max(
        (day for column in view.columns if (state := column.result.publication) for day in (state.measured, state.tried)), default=""
    )
    found = [environment(column, newest) for group in view.groups for column in reversed(group.columns)]
    return render("environments.html.j2", addresses.ENVIRONMENTS, view=view, environments=found, heads=HEADS)


def environment(column: Column, newest: str = "") -> Environment:
    """What one column is, from its environment.json; `newest` is the day of the newest published results, or of those held back."""
    fact = column.result.fact
    git = fact("torch", "git_version")[:10]
    accelerator = " ".join(f"{name} {fact('torch', name)}" for name in ("cuda", "hip") if fact("torch", name))
    sets = column.result.environment.get("environments")
    freezes = [(str(name), _freeze(value)) for name, value in sorted(sets.items())] if isinstance(sets, dict) else []
    numpy = sorted({line.partition("==")[2] for _, freeze in freezes for line in freeze.splitlines() if line.lower().startswith("numpy==")})
    off = column.result.controls_off
    known = isinstance(column.result.environment.get("controls"), dict)
    texts = [
        _joined(fact("torch", "version"), accelerator, git),
        _joined(fact("python", "implementation"), fact("python", "version")),
        _joined(fact("platform", "os") or fact("platform", "system"), fact("platform", "release"), fact("machine", "os_build")),
        _joined(fact("cpu", "model") or fact("machine", "chip"), fact("cpu", "capability"), _kind_of_machine(column)),
        _joined(fact("device", "name"), fact("device", "driver"), f"probe {fact('device', 'probe')}" if fact("device", "probe") else ""),
        ", ".join(numpy),
        f"off: {', '.join(off)}" if off else "right" if known else "",
        fact("started_at")[:10],
    ]
    return Environment(str(column.cell), _joined(column.note, fact("reason"), _held(column, newest)), texts, freezes)


def _held(column: Column, newest: str) -> str:
    """Why newer results of the column are not published, and how old those are that stand; empty where nothing is held back."""
    state = column.result.publication
    if state is None or not state.is_held:
        return ""
    age = state.age(newest)
    return _joined(f"{age} days older than the newest results" if age else "", f"newer results are not published: {'; '.join(state.held)}")


def _kind_of_machine(column: Column) -> str:
    """Whether the machine is a virtual one, of which kind; empty where nobody looked."""
    virtual = column.result.fact("machine", "virtual")
    kind = column.result.fact("machine", "hypervisor")
    return {"True": _joined("virtual machine", kind), "False": "no virtual machine"}.get(virtual, "")


def _freeze(value: Any) -> str:
    listed = value.get("freeze") if isinstance(value, dict) else None
    return "\n".join(str(line) for line in listed) if isinstance(listed, list) else ""


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
