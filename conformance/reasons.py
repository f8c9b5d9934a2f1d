"""Why a record is what it is, in words: its reason, its exception, and the line that it blames."""

from __future__ import annotations

import re

from conformance.artifacts import Record

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


def reason_of(record: Record) -> str:
    """Why, as the record says it: its reason, else its exception; empty where it has neither."""
    return str(record["reason"]) or exception_of(record)


def generic_reason(record: Record) -> str:
    """The same with a sign in place of every number: what cases that fail alike have in common."""
    return _NUMBERS.sub("#", reason_of(record))


def stated_reason(record: Record) -> str:
    """The same where a reader must find something: says so where nothing was recorded."""
    return reason_of(record) or "no reason recorded"


def exception_of(record: Record) -> str:
    """The exception of the record, as `type: message`; empty without one."""
    exception = record["exception"]
    return f"{exception['type']}: {exception['message']}" if exception else ""


def blamed(record: Record) -> str:
    """Where the record puts the blame, as `file:line`; empty when it does not."""
    blame = record["blame"]
    return f"{blame['file']}:{blame['line']}" if blame else ""


def blamed_source(record: Record) -> str:
    """The line of source that is blamed; empty when none is."""
    return str((record["blame"] or {}).get("source") or "")
