"""The frame: one row per case and cell, for tables, files and analysis. pandas is imported here and nowhere before a report."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from conformance.artifacts import Record
from conformance.coverage import covering
from conformance.expectations import Expectation
from conformance.plaintext import visible
from conformance.reasons import blamed, exception_of
from conformance.results import CellResult, ResultSet

if TYPE_CHECKING:
    import pandas as pd

#: Column -> dtype. Releases are text: a number would turn 2.10 into 2.1.
COLUMNS = {
    "case": "string",
    "family": "string",
    "subject": "string",
    "cell": "string",
    "torch": "string",
    "python": "string",
    "device": "string",
    "platform": "string",
    "tag": "string",
    "environment": "string",
    "attempts": "Int64",
    "verdict": "string",
    "stage": "string",
    "reason": "string",
    "expected": "string",
    "link": "string",
    "blame": "string",
    "exception": "string",
    "signal": "string",
    "started_at": "string",
    "duration_s": "float64",
    "ops_on_device": "Int64",
    "ops_fallen_back": "string",
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def frame(result: ResultSet, expectations: Sequence[Expectation]) -> pd.DataFrame:
    """One row per case and cell, the worst attempt speaking, in the order of cells; the columns and dtypes are those of COLUMNS.

    `attempts` counts the records of the case; `expected` and `link` are those of the expectation that covers it, empty without one.
    """
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for row in rows(result, expectations):
        for name, value in zip(COLUMNS, row, strict=True):
            columns[name].append(value)
    dtypes: dict[str, Any] = dict(COLUMNS)
    table: pd.DataFrame = pd.DataFrame({name: pd.array(columns[name], dtype=dtype) for name, dtype in dtypes.items()})
    return table


def rows(result: ResultSet, expectations: Sequence[Expectation]) -> Iterator[tuple[Any, ...]]:
    """The rows of the frame as plain tuples in the order of COLUMNS."""
    for cell in result.cells:
        yield from _rows_of(cell, expectations)


def _rows_of(cell: CellResult, expectations: Sequence[Expectation]) -> Iterator[tuple[Any, ...]]:
    attempts = Counter(record["case"] for record in cell.records)
    for record in cell.outcomes().values():
        yield _row(cell, record, attempts[record["case"]], covering(record, expectations))


def _row(result: CellResult, record: Record, attempts: int, expectation: Expectation | None) -> tuple[Any, ...]:
    cell = result.cell
    return (
        record["case"],
        record["family"],
        record["subject"] or "",
        str(cell),
        cell.torch,
        cell.python,
        cell.device,
        cell.platform,
        cell.tag,
        record["environment"],
        attempts,
        record["verdict"],
        record["stage"],
        record["reason"],
        expectation.reason if expectation else "",
        expectation.link if expectation else "",
        blamed(record),
        exception_of(record),
        record["signal"] or "",
        record["started_at"] or "",
        float(record["duration_s"]),
        *_device_ops(record),
    )


def _device_ops(record: Record) -> tuple[int | None, str]:
    """How many ops ran on the device, None where nothing counted, and the names of those that fell back to the CPU."""
    counted = record["device_ops"] or {}
    fallback = counted.get("fallback")
    return counted.get("on"), " ".join(str(name) for name in fallback) if isinstance(fallback, list) else ""


def csv_chunks(result: ResultSet, expectations: Sequence[Expectation]) -> Iterator[bytes]:
    """The rows as CSV with a header line, a cell at a time. Text that a spreadsheet would run as a formula has an apostrophe before it."""
    yield _csv([COLUMNS])
    for cell in result.cells:
        yield _csv([_inert(value) for value in row] for row in _rows_of(cell, expectations))


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode()


def _inert(value: Any) -> Any:
    return _inert_text(value) if isinstance(value, str) else value


@lru_cache(maxsize=10_000)
def _inert_text(text: str) -> str:
    shown = visible(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
