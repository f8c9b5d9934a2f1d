"""What a release declares: its operators and where each has a kernel, read from the native_functions.yaml in its wheel.

A reader of that one file, which torchgen wants PyYAML for: entries begin with `- func:`, keys are two columns in, and what a key holds is
on its line or indented below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: Where a wheel keeps the file.
MEMBER = "torchgen/packaged/ATen/native/native_functions.yaml"
_EXPLICIT = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_IMPLICIT = "CompositeImplicitAutograd"
#: One letter a kind, as the table stores it.
KERNEL, DELEGATE, EXPLICIT, IMPLICIT, NONE = "mdein"


@dataclass(frozen=True)
class Declared:
    """One overload: `kind` is one of the letters above; `via` is the overload whose kernel it runs, or whose lack its error names.

    `decomposes`: where the device has no entry for it, it runs as other operators do, before any device is asked.
    """

    name: str
    kind: str
    via: str = ""
    decomposes: bool = False


@dataclass
class _Entry:
    name: str
    keys: dict[str, str] = field(default_factory=dict)
    dispatch: dict[str, str] = field(default_factory=dict)


def declared(text: str, key: str = "MPS") -> Iterator[Declared]:
    """Every overload that the file declares, generated ones too, with its kind for the dispatch key `key`.

    The order of the rules is the dispatcher's: a kernel of its own, the structured overload that it hands on to, the composite that calls
    other operators, and nothing.
    """
    entries = {entry.name: entry for entry in _entries(text)}
    generated: dict[str, str] = {}
    for entry in entries.values():
        found = Declared(entry.name, *_kind(entry, entries, key), decomposes=_decomposes(entry))
        yield found
        # torchgen generates variants of what does not decompose anyway, and of core operators (native_function_generation.py)
        if found.kind != IMPLICIT or "core" in _listed(entry.keys.get("tags", "")):
            for name in _listed(entry.keys.get("autogen", "")):
                generated.setdefault(name, entry.name)
    yield from (Declared(name, EXPLICIT, base) for name, base in generated.items() if name not in entries)


def _kind(entry: _Entry, entries: Mapping[str, _Entry], key: str) -> tuple[str, str]:
    target = entry.keys.get("structured_delegate", "")
    if key in entry.dispatch:
        return KERNEL, ""
    if target and key in entries[target].dispatch:
        return DELEGATE, target
    if any(each in entry.dispatch for each in _EXPLICIT):
        return EXPLICIT, ""
    return (IMPLICIT, "") if _decomposes(entry) else (NONE, target)


def _decomposes(entry: _Entry) -> bool:
    return _IMPLICIT in entry.dispatch or not {"dispatch", "structured_delegate"} & set(entry.keys)


def _entries(text: str) -> Iterator[_Entry]:
    entry, inside = None, ""
    for line in text.splitlines():
        bare = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if bare.startswith("- func:"):
            if entry is not None:
                yield entry
            entry, inside = _Entry(re.sub(r"\(.*", "", bare.removeprefix("- func:").strip())), ""
        elif entry is not None and (found := re.match(r"(\s+)([\w, ]+):\s*(.*)", bare)):
            indent, name, value = found.groups()
            if len(indent) == 2:
                inside = name
                entry.keys[name] = value
            elif inside == "dispatch":
                entry.dispatch.update(dict.fromkeys(_listed(name), value))
    if entry is not None:
        yield entry


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.strip("[]").split(",") if part.strip()]
