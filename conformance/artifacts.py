"""JSON files of a run: written whole or not at all, read without trust."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.incell import records as schema

Record = dict[str, Any]

#: Deeper tables than this are refused on reading: no artifact needs them, and they exhaust the stack of whoever walks them.
MAX_DEPTH = 100
_NESTED_DEEPER = f"nested deeper than {MAX_DEPTH} levels"


@dataclass(frozen=True, order=True)
class Problem:
    """What could not be read or believed: the file inside the result set, its line (0: the whole file) and what is wrong."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}"


def portable(value: Any, depth: int = 0) -> Any:
    """`value` as every JSON reader takes it; raises ValueError when it is nested deeper than MAX_DEPTH.

    A lone surrogate becomes its escape as visible text (`\\udc80`), a number that is not finite the text "nan", "inf" or "-inf".
    """
    if depth > MAX_DEPTH:
        raise ValueError(_NESTED_DEEPER)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {portable(str(key)): portable(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [portable(inner, depth + 1) for inner in value]
    return value


def encode(value: Any, *, indent: int | None = None) -> bytes:
    """One deterministic JSON text in UTF-8 for `value`, made portable where it is not."""
    try:
        return _dump(value, indent).encode()
    except ValueError:  # a number that is not finite, or a lone surrogate
        return _dump(portable(value), indent).encode()


def _dump(value: Any, indent: int | None) -> str:
    return _COMPACT.encode(value) if indent is None else _indented(value, "")


def _indented(value: Any, margin: str) -> str:
    """A table with a line for each of its names, and for each entry of a list that it holds; what is deeper stands on one line."""
    inner = margin + " "
    if isinstance(value, dict) and value:
        rows = (f"{inner}{_COMPACT.encode(str(name))}: {_indented(value[name], inner)}" for name in sorted(value))
        return "{\n" + ",\n".join(rows) + f"\n{margin}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + _COMPACT.encode(entry) for entry in value) + f"\n{margin}]"
    return _COMPACT.encode(value)


_COMPACT = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse(text: bytes) -> Any:
    """The portable value that one JSON text holds; raises ValueError for whatever is no sound JSON in UTF-8."""
    try:
        value = _DECODER.decode(text.decode("utf-8"))
        if b"\\ud" in text.lower():
            return portable(value)
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _deeper(value):
            raise ValueError(_NESTED_DEEPER)
        return value
    except RecursionError as error:
        raise ValueError(_NESTED_DEEPER) from error


def _deeper(value: Any) -> bool:
    """Whether tables and lists are nested deeper than MAX_DEPTH, level by level: large files are shallow, and walked in no time."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _constant(name: str) -> str:
    return {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[name]


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else str(number)


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_finite)


def write_bytes(path: Path, content: bytes) -> None:
    """Puts `content` at `path` whole or not at all, whenever the process or the machine dies; makes the folder."""
    write_chunks(path, [content])


def write_chunks(path: Path, chunks: Iterable[bytes]) -> None:
    """Puts what `chunks` give one after the other at `path`, whole or not at all; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, obj: Any) -> None:
    """Writes `obj` atomically as indented JSON with sorted keys: equal objects give equal bytes."""
    write_bytes(path, encode(obj, indent=1) + b"\n")


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Writes records atomically, one JSON text a line; raises RecordError, before it writes, for one that breaks the schema."""
    write_bytes(path, b"".join(encode(schema.validate(record)) + b"\n" for record in records))


def read_table(path: Path) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The table that a JSON file holds and what is wrong with it: None for a file that is not there or not readable.

    A table of a newer schema comes with a problem that says so: its reader decides what of it to use.
    """
    where = _place(path)
    try:
        table = parse(path.read_bytes())
    except FileNotFoundError:
        return None, []
    except OSError as error:
        return None, [Problem(where, 0, f"cannot be read: {error.strerror}")]
    except ValueError as error:
        return None, [Problem(where, 0, f"is damaged ({_brief(error)}): measure it again, or copy it again from its machine")]
    if not isinstance(table, dict):
        return None, [Problem(where, 0, f"holds {type(table).__name__}, not a table")]
    version = table.get("schema", schema.SCHEMA)
    if version != schema.SCHEMA:
        return table, [Problem(where, 0, f"has schema {_brief(version)}, this tool reads {schema.SCHEMA}: use the version that wrote it")]
    return table, []


def read_records(path: Path) -> tuple[list[Record], list[Problem]]:
    """The sound records of one file, in its order, and a problem for each line that is not; no file means no records.

    A repeated key (cell, case, attempt) is dropped when the records are equal; when they differ, the first stays and a problem tells.
    """
    kept: dict[tuple[str, str, int], Record] = {}
    problems: list[Problem] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    message = _take(line, kept)
                    if message:
                        problems.append(Problem(_place(path), number, message))
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(Problem(_place(path), 0, f"cannot be read: {error.strerror}"))
    return list(kept.values()), problems


def _take(line: bytes, kept: dict[tuple[str, str, int], Record]) -> str:
    """Adds the record in `line` to `kept`; returns what is wrong with it, or nothing."""
    try:
        record = schema.validate(parse(line))
    except schema.RecordError as error:
        return _brief(error)
    except ValueError as error:
        kind = "is damaged" if line.endswith(b"\n") else "is cut off"
        return f"the line {kind} ({_brief(error)}): this record is lost"
    record = _compact(record)
    key = record_key(record)
    first = kept.setdefault(key, record)
    if first is record or first == record:
        return ""
    return f"a second, different record of {_brief(key[1])} attempt {key[2]}: the first is kept"


def _compact(record: Record) -> Record:
    """An equal record that shares its field names and what is the same in many: a million of them fit into memory."""
    made: Record = {name: record[name] for name in schema.FIELDS}
    for name in _REPEATED:
        made[name] = sys.intern(made[name])
    for name, empty in _EMPTY.items():
        if not made[name]:
            made[name] = empty
    if made["observations"]:
        made["observations"] = {sys.intern(name): _compact_table(seen) for name, seen in made["observations"].items()}
    return made


def _compact_table(seen: Any) -> Any:
    return {sys.intern(name): value for name, value in seen.items()} if isinstance(seen, dict) else seen


#: Fields whose texts many records share, and the empty values of others. Records are facts: nobody writes into them.
_REPEATED = ("cell", "case", "family", "environment", "verdict", "stage", "reason")
_EMPTY: dict[str, Any] = {"params": {}, "observations": {}, "subresults": []}


def record_key(record: Record) -> tuple[str, str, int]:
    """What names a record: its cell, case and attempt."""
    return record["cell"], record["case"], record["attempt"]


def _place(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
