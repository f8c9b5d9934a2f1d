"""The record: what one case did in one cell on one attempt. Its schema, and the check that every reader makes."""

from __future__ import annotations

from typing import Any

from conformance.incell.verdicts import Stage, Verdict

#: Version of the record's schema. Readers refuse a newer one rather than guess.
SCHEMA = 1

_TEXT, _OPTIONAL_TEXT = (str,), (str, type(None))
_NUMBER, _TABLE, _OPTIONAL_TABLE = (int, float), (dict,), (dict, type(None))

#: Field name -> the JSON types it may have. Every record has exactly these fields.
FIELDS: dict[str, tuple[type, ...]] = {
    "schema": (int,),
    "cell": _TEXT,
    "case": _TEXT,
    "family": _TEXT,
    "subject": _OPTIONAL_TEXT,
    "environment": _TEXT,
    "attempt": (int,),
    "params": _TABLE,
    "seed": (int, type(None)),
    "verdict": _TEXT,
    "stage": _TEXT,
    "reason": _TEXT,
    "exception": _OPTIONAL_TABLE,
    "blame": _OPTIONAL_TABLE,
    "signal": _OPTIONAL_TEXT,
    "output_tail": _TEXT,
    "started_at": _OPTIONAL_TEXT,
    "duration_s": _NUMBER,
    "device_ops": _OPTIONAL_TABLE,
    "observations": _TABLE,
    "subresults": (list,),
    "key": _OPTIONAL_TEXT,
}

_VERDICTS = frozenset(verdict.value for verdict in Verdict)
_STAGES = frozenset(stage.value for stage in Stage)
_NESTED = {"exception": ("type", "message"), "blame": ("file", "line", "source"), "device_ops": ("on", "fallback")}


class RecordError(ValueError):
    """A record that does not follow the schema; the message names the field."""


def blank(cell: str, case: str, **fields: Any) -> dict[str, Any]:
    """A complete record with neutral values, `fields` laid over them. `case` names the family before its first dot."""
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "cell": cell,
        "case": case,
        "family": case.partition(".")[0],
        "subject": None,
        "environment": "base",
        "attempt": 1,
        "params": {},
        "seed": None,
        "verdict": Verdict.MISSING.value,
        "stage": Stage.RUN.value,
        "reason": "",
        "exception": None,
        "blame": None,
        "signal": None,
        "output_tail": "",
        "started_at": None,
        "duration_s": 0.0,
        "device_ops": None,
        "observations": {},
        "subresults": [],
        "key": None,
    }
    record.update(fields)
    return record


def validate(record: Any) -> dict[str, Any]:
    """`record` itself when it follows the schema; raises RecordError with the field and what is wrong otherwise."""
    if not isinstance(record, dict):
        raise RecordError(f"a record is a table, not {type(record).__name__}")
    _check_schema(record.get("schema"))
    for name, types in FIELDS.items():
        if name not in record:
            raise RecordError(f"field {name!r} is missing")
        value = record[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise RecordError(f"field {name!r} is {type(value).__name__}")
    _check_values(record)
    return record


def _check_schema(schema: Any) -> None:
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise RecordError("field 'schema' is not a number")
    if schema != SCHEMA:
        raise RecordError(f"schema {schema} is not schema {SCHEMA}: read it with the version of this tool that wrote it, or a newer one")


def _check_values(record: dict[str, Any]) -> None:
    unknown = sorted(set(record) - set(FIELDS))
    if unknown:
        raise RecordError(f"unknown field {unknown[0]!r}")
    if record["verdict"] not in _VERDICTS:
        raise RecordError(f"verdict {record['verdict']!r} is not one of {', '.join(verdict.value for verdict in Verdict)}")
    if record["stage"] not in _STAGES:
        raise RecordError(f"stage {record['stage']!r} is not one of {', '.join(stage.value for stage in Stage)}")
    if record["attempt"] < 1:
        raise RecordError("field 'attempt' counts from 1")
    for name, inner in _NESTED.items():
        value = record[name]
        if value is not None and sorted(value) != sorted(inner):
            raise RecordError(f"field {name!r} holds {sorted(value)}, not {sorted(inner)}")
