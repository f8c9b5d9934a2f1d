"""Published columns: one compressed file per cell, small enough to be committed, read back as any other cell.

A file `<cell>.json.xz` holds the cell's environment, the list of its cases, its records and its controls, each list as columns (field ->
values) in the order of cases. What is lost: `key` of records and cases (a published fact settles no later run), `output_tail` of records
that pass or are not supported, and of the list of cases all but CASE_FIELDS.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from conformance.artifacts import Problem, Record, encode, parse
from conformance.cells import Cell
from conformance.incell import records as schema
from conformance.incell.verdicts import Verdict

#: Version of the packed file.
SCHEMA = 1
SUFFIX = ".json.xz"
#: What stays of each case that collection listed.
CASE_FIELDS = ("case", "family", "subject", "environment", "file", "file_case", "line", "title", "requirements")
#: A file that unpacks to more is refused: it is a mistake or an attack.
MAX_BYTES = 512 * 2**20
_CONSTANT = ("schema", "cell", "key")
_QUIET = (Verdict.PASS.value, Verdict.UNSUPPORTED.value)


def pack(cell: Cell, environment: dict[str, Any], collected: dict[str, Any], records: list[Record], controls: list[Record]) -> bytes:
    """The bytes of one published column; equal arguments give equal bytes. `missing` records are left out: a reader makes them again."""
    cases = collected.get("cases")
    listed = [entry for entry in cases if isinstance(entry, dict)] if isinstance(cases, list) else []
    listed.sort(key=lambda entry: str(entry.get("case")))
    table = {
        "schema": SCHEMA,
        "cell": str(cell),
        "environment": environment,
        "collected": {**{name: value for name, value in collected.items() if name != "key"}, "cases": _columns(listed, CASE_FIELDS)},
        "records": _records(records),
        "controls": _records(controls),
    }
    return lzma.compress(encode(table), preset=9 | lzma.PRESET_EXTREME)


def _records(records: Iterable[Record]) -> dict[str, list[Any]]:
    kept = sorted(
        (record for record in records if record["verdict"] != Verdict.MISSING.value), key=lambda record: (record["case"], record["attempt"])
    )
    quiet = [{**record, "output_tail": ""} if record["verdict"] in _QUIET else record for record in kept]
    return _columns(quiet, [name for name in schema.FIELDS if name not in _CONSTANT])


def _columns(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in names}


def unpack(path: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The tables of one published column by the names of a cell's files (`environment`, `collected`, `records`, `controls`).

    What is damaged, too large or of another schema gives no tables and a problem; a record that is not sound costs itself alone.
    """
    cell = path.name.removesuffix(SUFFIX)
    where = f"{path.parent.name}/{path.name}"
    try:
        table = parse(_decompressed(path))
        if not isinstance(table, dict) or table.get("schema") != SCHEMA or table.get("cell") != cell:
            raise ValueError(f"it is no published column of {cell} of schema {SCHEMA}")
        problems: list[Problem] = []
        rows = {name: _sound(_rows(table[name]), cell, f"{where}: {name}", problems) for name in ("records", "controls")}
        environment, collected = (table[name] if isinstance(table[name], dict) else {} for name in ("environment", "collected"))
        if isinstance(collected.get("cases"), dict):
            collected = {**collected, "cases": _rows(collected["cases"])}
    except OSError as error:
        return {}, [Problem(where, 0, f"cannot be read: {error.strerror}")]
    except (ValueError, KeyError, lzma.LZMAError, EOFError) as error:
        return {}, [Problem(where, 0, f"is damaged ({str(error)[:200]}): restore it from version control, or publish it again")]
    return {"environment": environment, "collected": collected, **rows}, problems


def _decompressed(path: Path) -> bytes:
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=256 * 2**20)
    text = unpacker.decompress(path.read_bytes(), max_length=MAX_BYTES)
    if not unpacker.eof:
        raise ValueError("it is cut off, or unpacks to more than is believable")
    return text


def _rows(columns: Any) -> list[dict[str, Any]]:
    """Columns of equal length as rows; raises ValueError for anything else."""
    if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
        raise ValueError("a list of it is not written as columns")
    if len({len(values) for values in columns.values()}) > 1:
        raise ValueError("its columns differ in length")
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def _sound(rows: Iterable[dict[str, Any]], cell: str, where: str, problems: list[Problem]) -> list[Record]:
    kept = []
    for number, row in enumerate(rows, 1):
        try:
            kept.append(schema.validate({**row, "schema": schema.SCHEMA, "cell": cell, "key": None}))
        except schema.RecordError as error:
            problems.append(Problem(where, number, str(error)[:200]))
    return kept
