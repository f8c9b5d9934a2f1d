"""Scripts: beside the page of a case that deviates, a single file that shows it with plain Python and torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance import reproduction
from conformance.artifacts import Record
from conformance.columns import Column
from conformance.globalnames import NotSliceableError
from conformance.incell.verdicts import Verdict
from conformance.report import addresses
from conformance.report.view import Row, View
from conformance.subjectspecs import BUILTIN

#: Devices of which a script needs no more than torch.
_OF_TORCH = frozenset({"cpu", "cuda", "mps", "xpu", "meta"})
#: What a case comes to where all is well.
_RIGHT = reproduction.Neighbour("", Verdict.PASS.value, "", "")


@dataclass(frozen=True)
class Script:
    """The text, where it lies in the site, and the command that runs it on the release that deviates."""

    address: str
    text: str
    command: str


def script(view: View, row: Row, column: Column, record: Record) -> Script | None:
    """The script of a case that deviates in a column; None where the case cannot stand on its own."""
    path = view.paths.get(row.function)
    own = record["subject"] is None or record["subject"] in BUILTIN
    if path is None or not own or column.cell.device not in _OF_TORCH or not Verdict(record["verdict"]).deviates:
        return None
    address = addresses.script(row.case)
    after = _side(column, record, address)
    wanted = reproduction.Wanted(
        case=row.case,
        file=path,
        params=record["params"],
        device=column.cell.device,
        observation="",
        before=_right(view, row, column, address),
        after=after,
    )
    try:
        return Script(address, reproduction.script(wanted), after.command)
    except (NotSliceableError, OSError, SyntaxError):
        return None


def _right(view: View, row: Row, column: Column, address: str) -> reproduction.Neighbour:
    """The nearest release of the group where the case passes, the older of two; what it asks for where it passes nowhere."""
    for group, records in view.split(row):
        if column in group.columns:
            at = group.columns.index(column)
            near = sorted(_passing(records), key=lambda index: (abs(index - at), index))
            return _side(group.columns[near[0]], records[near[0]], address) if near else _RIGHT
    return _RIGHT


def _passing(records: Sequence[Record | None]) -> Iterator[int]:
    return (index for index, record in enumerate(records) if record is not None and record["verdict"] == Verdict.PASS.value)


def _side(column: Column, record: Record | None, address: str) -> reproduction.Neighbour:
    assert record is not None
    environments = column.result.environment.get("environments", {})
    return reproduction.neighbour(
        column.cell.torch,
        record["verdict"],
        f"measured on Python {column.cell.python}, {column.cell.platform}",
        python=column.cell.python,
        packages=environments.get(record["environment"], {}).get("requirements", ()),
        file=address.rpartition("/")[2],
    )
