"""The table for a terminal: families down, cells across, as wide as the terminal is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from conformance.columns import Column, groups
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.report import grid
from conformance.report.headline import headline
from conformance.results import ResultSet

_COLORS = {
    Verdict.PASS: "32",
    Verdict.WRONG: "31;1",
    Verdict.CRASH: "35;1",
    Verdict.RAISES: "31",
    Verdict.TIMEOUT: "33",
    Verdict.MISSING: "33",
}


def table(result: ResultSet, expectations: Sequence[Expectation], *, width: int | None = None, color: bool = False) -> str:
    """The answer, and the counts by family and cell: `38` are 38 passes, `36 2✕` adds two that are wrong.

    Columns that do not fit `width` characters (default: the terminal's) go into a table below.
    """
    columns = groups(result)
    summary = headline(columns, expectations)
    lines = [summary.answer, summary.measured]
    families = grid.families(columns)
    room = (width or shutil.get_terminal_size((100, 24)).columns) - max([len(name) for name in families], default=0) - 2
    for group in columns:
        lines += ["", group.label]
        for block in _blocks(group.columns, families, room):
            lines += _lines(block, families, color=color)
    signs = ", ".join(f"{grid.SIGNS[verdict]} {verdict}" for verdict in summary.verdicts if verdict is not Verdict.PASS)
    return "\n".join([*lines, "", f"numbers without a sign pass; {signs}"] if signs else lines)


def show(result: ResultSet, expectations: Sequence[Expectation], stream: TextIO | None = None) -> None:
    """Prints the table; in colour only where `stream` is a terminal and NO_COLOR is not set."""
    target = stream or sys.stdout
    text = table(result, expectations, color=target.isatty() and not os.environ.get("NO_COLOR"))
    encoding = target.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), file=target)


def _blocks(columns: Sequence[Column], families: Sequence[str], room: int) -> list[list[Column]]:
    """The columns in as few tables as `room` characters allow, at least one column each."""
    blocks: list[list[Column]] = [[]]
    used = 0
    for column in columns:
        need = _width(column, families) + 2
        if blocks[-1] and used + need > room:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += need
    return blocks


def _width(column: Column, families: Sequence[str]) -> int:
    return max(len(_head(column)), *(len(_text(column, family)) for family in families), 1) if families else len(_head(column))


def _head(column: Column) -> str:
    return f"{column.cell.torch}{'*' if column.note else ''}"


def _lines(block: Sequence[Column], families: Sequence[str], *, color: bool) -> list[str]:
    name_width = max([len(one_line(family, 40)) for family in families], default=0)
    widths = [_width(column, families) for column in block]
    lines = [" " * name_width + "".join(f"  {_head(column):>{width}}" for column, width in zip(block, widths, strict=True))]
    for family in families:
        texts = []
        for column, width in zip(block, widths, strict=True):
            text = _text(column, family)
            painted = _text(column, family, color=True) if color else text
            texts.append("  " + " " * (width - len(text)) + painted)
        lines.append(f"{one_line(family, 40):<{name_width}}" + "".join(texts))
    return lines + [f"  * {column.cell.torch}: {one_line(column.note, 60)}" for column in block if column.note]


def _text(column: Column, family: str, *, color: bool = False) -> str:
    """The counts of one family in one cell, passes first."""
    if not column.measured:
        return "not measured"
    counts = grid.counts(column, family)
    found = [(verdict, counts[verdict]) for verdict in (Verdict.PASS, *Verdict) if verdict in counts]
    parts = [
        _painted(f"{number}{'' if verdict is Verdict.PASS else grid.SIGNS[verdict]}", verdict, color=color)
        for verdict, number in dict(found).items()
    ]
    return " ".join(parts) or "·"


def _painted(text: str, verdict: Verdict, *, color: bool) -> str:
    return f"\x1b[{_COLORS[verdict]}m{text}\x1b[0m" if color and verdict in _COLORS else text
