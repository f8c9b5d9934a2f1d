"""The site: one self-contained page, and a page per family where one page would be too heavy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conformance import __version__
from conformance.columns import Column, Group, groups
from conformance.expectations import Expectation
from conformance.gate import Judgement
from conformance.incell.verdicts import Verdict
from conformance.plaintext import visible
from conformance.report import bits, deviations, grid
from conformance.report.headline import headline
from conformance.results import ResultSet

TEMPLATES = Path(__file__).parent / "templates"
#: More results than this, and each family's table gets a page of its own.
ONE_PAGE = 20_000


@dataclass(frozen=True)
class FamilyTable:
    """One family: its counts in each column, its rows, and the address of its full table."""

    name: str
    counts: list[grid.Count | None]
    rows: list[grid.Row]
    address: str
    file: str

    @property
    def deviating(self) -> int:
        """How many cases deviate somewhere."""
        return sum(row.deviates for row in self.rows)


def pages(result: ResultSet, expectations: Sequence[Expectation], judgement: Judgement) -> dict[str, str]:
    """File name -> HTML of every page of the site; index.html holds all of it up to ONE_PAGE results."""
    columns = groups(result)
    summary = headline(columns, expectations)
    split = summary.results > ONE_PAGE
    tables = _tables(columns, expectations, split=split)
    seen = bits.series(columns)
    common: dict[str, Any] = {"groups": columns, "headline": summary, "tool": __version__}
    found = {
        "index.html": _render(
            "index.html.j2",
            **common,
            tables=tables,
            split=split,
            patterns=bits.patterns([each for each in seen if each.changes or each.mixed]),
            unchanged=[each for each in seen if not each.changes and not each.mixed],
            kinds=deviations.kinds(columns, expectations),
            environments=[_facts(column) for group in columns for column in group.columns],
            judgement=judgement,
            problems=result.all_problems(),
            conflicts=result.conflicts,
        )
    }
    if split:
        found.update({table.file: _render("family.html.j2", **common, table=table) for table in tables})
    return found


def _tables(columns: Sequence[Group], expectations: Sequence[Expectation], *, split: bool) -> list[FamilyTable]:
    found = []
    for number, name in enumerate(grid.families(columns)):
        slug = re.sub(r"[^a-z0-9_]+", "-", name.lower()) if re.fullmatch(r"[a-z0-9_]{1,40}", name) else f"{number}"
        file = f"family-{slug}.html"
        rows = list(grid.rows(columns, name, expectations))
        found.append(FamilyTable(name, grid.counts(columns, name), rows, file if split else f"#family-{slug}", file))
    return found


@dataclass(frozen=True)
class Facts:
    """What the environment of one column is, for its row in the table of environments."""

    cell: str
    note: str
    facts: list[str]
    freezes: list[tuple[str, str]]


#: The heads of the table of environments; `_facts` gives a text for each.
FACTS = ("torch build", "Python", "OS", "CPU", "device", "numpy", "controls")


def _facts(column: Column) -> Facts:
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
    ]
    reason = fact("reason")
    return Facts(str(column.cell), _joined(column.note, reason), texts, freezes)


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


def _render(template: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.globals.update(signs=grid.SIGNS, fact_heads=FACTS, verdicts=list(Verdict), meanings=MEANINGS)
    environment.filters["clipped"] = grid.clipped
    return environment.get_template(template).render(**values)


def _finalize(value: Any) -> Any:
    """What autoescape leaves is made visible too: control characters and bidi marks do not reach the page."""
    return visible(value) if type(value) is str else value


#: What each verdict says, for the legend.
MEANINGS = {
    Verdict.WRONG: "ran and gave a different answer, in silence",
    Verdict.CRASH: "the process died",
    Verdict.RAISES: "torch raised where it should work",
    Verdict.TIMEOUT: "did not end in time",
    Verdict.UNEXERCISED: "green, but nothing ran on the device",
    Verdict.ERROR: "the harness or the environment failed: says nothing about torch",
    Verdict.MISSING: "planned, and no record came",
    Verdict.PASS: "as it should be",
    Verdict.UNSUPPORTED: "the API or device is not there",
}
