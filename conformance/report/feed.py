"""changes.atom: what changed at each release on each device, the newest first, for readers of feeds."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from xml.sax.saxutils import escape, quoteattr

from conformance import __version__
from conformance.answers.difference import headline
from conformance.columns import Group
from conformance.differences import Cause, Difference
from conformance.incell.records import SCHEMA
from conformance.plaintext import one_line
from conformance.report import addresses
from conformance.transitions import Transition, transitions

#: Cases and other lines of one kind that an entry names; the page of the release has all.
NAMED = 30
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "torch-conformance")
_NO_DATE = "1970-01-01T00:00:00Z"


def feed(groups: Sequence[Group]) -> str:
    """The feed as Atom (RFC 4287). Every date comes from the records, every id from device and release: equal results, equal bytes."""
    changed = [(group, each) for group in groups for each in transitions(group.sound) if not each.empty]
    changed.sort(key=lambda pair: (pair[1].version, pair[0].label), reverse=True)
    dates = [_updated(group, each) for group, each in changed]
    entries = [line for (group, each), date in zip(changed, dates) for line in _entry(group, each, date)]
    head = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        "  <title>PyTorch conformance: what changed</title>",
        f"  <id>{uuid.uuid5(_NAMESPACE, 'changes').urn}</id>",
        f"  <updated>{max(dates, default=_NO_DATE)}</updated>",
        "  <author><name>torch-conformance</name></author>",
        f'  <generator version="{__version__}">torch-conformance, schema {SCHEMA}</generator>',
    ]
    return "\n".join([*head, *entries, "</feed>", ""])


def _updated(group: Group, transition: Transition) -> str:
    """When the newest record of the release was made, in UTC."""
    found = [
        moment
        for column in group.columns
        if column.version == transition.version
        for record in column.outcomes.values()
        if (moment := _moment(record["started_at"]))
    ]
    return max(found, default=_NO_DATE)


def _moment(text: object) -> str:
    try:
        moment = datetime.fromisoformat(str(text))
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if moment.tzinfo else ""
    except (ValueError, OverflowError):
        return ""


def _entry(group: Group, transition: Transition, date: str) -> Iterator[str]:
    title = f"torch {transition.version} on {group.label}: {headline(transition.difference, transition.earlier)}"
    page = f"site/{addresses.release(str(transition.version))}"
    yield "  <entry>"
    yield f"    <title>{escape(one_line(title))}</title>"
    yield f"    <id>{uuid.uuid5(_NAMESPACE, f'{group.label}|{transition.version}').urn}</id>"
    yield f"    <updated>{date}</updated>"
    yield f'    <link rel="alternate" type="text/html" href={quoteattr(page)}/>'
    yield f'    <content type="html">{escape("".join(_html(transition)))}</content>'
    yield "  </entry>"


def _html(transition: Transition) -> Iterator[str]:
    found: Difference = transition.difference
    yield f"<p>Against torch {escape(str(transition.previous))}.</p>"
    for title, causes in (("Worse", found.worse), ("Better", found.better), ("Against older releases", transition.earlier)):
        yield from _listed(title, map(_cause, causes))
    for title, worse in (("Numbers that got worse", True), ("Numbers that got better", False)):
        yield from _listed(title, (escape(one_line(str(move), 300)) for move in found.numbers if move.worse is worse))
    yield from _listed("Bits that changed", (escape(one_line(f"{move.case}: {move.name}", 300)) for move in found.bits))


def _cause(cause: Cause) -> str:
    named = ", ".join(f"<code>{escape(one_line(case, 200))}</code>" for case in cause.cases[:NAMED])
    more = f" and {len(cause.cases) - NAMED} more" if len(cause.cases) > NAMED else ""
    return f"{cause.before} to {cause.after}: {named}{more}: {escape(one_line(cause.reason, 300))}"


def _listed(title: str, entries: Iterable[str]) -> Iterator[str]:
    listed = list(entries)
    if listed:
        more = f"<li>and {len(listed) - NAMED} more</li>" if len(listed) > NAMED else ""
        yield f"<h3>{title}</h3><ul>{''.join(f'<li>{entry}</li>' for entry in listed[:NAMED])}{more}</ul>"
