"""How far the numbers of a model moved between releases: classes of equal bits, and from one to the next the distance in ULP."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.version import Version

from conformance.artifacts import Record
from conformance.compare import Change, changes, classes

#: An observed tensor as observations.describe_tensor has it.
Observed = Mapping[str, Any]
#: dtype -> struct's codes for a float and the unsigned integer of its size, and the bits that a bfloat16 has not.
_LAYOUTS = {"float64": ("<d", "<Q", 0), "float32": ("<f", "<I", 0), "float16": ("<e", "<H", 0), "bfloat16": ("<f", "<I", 16)}


def ulps(first: Observed, second: Observed) -> int | None:
    """The largest distance between the kept values of two observed tensors, in units in the last place of their dtype.

    None where they cannot be compared: another dtype or shape, no values, a number that is finite in one of them alone.
    """
    layout = _LAYOUTS.get(first["dtype"])
    if layout is None or (first["dtype"], first["shape"]) != (second["dtype"], second["shape"]) or not first["values"]:
        return None
    pairs = [(float(one), float(two)) for one, two in zip(first["values"], second["values"], strict=True)]
    if any((one != one) != (two != two) or (abs(one) == float("inf")) != (abs(two) == float("inf")) for one, two in pairs):
        return None
    return max(abs(_place(one, layout) - _place(two, layout)) for one, two in pairs if one == one) if pairs else 0


def _place(value: float, layout: tuple[str, str, int]) -> int:
    """The place of `value` among all numbers of its dtype in order: neighbours are one apart, both zeros are 0."""
    code, whole, dropped = layout
    (bits,) = struct.unpack(whole, struct.pack(code, value))
    width = struct.calcsize(whole) * 8
    place: int = (bits & ~(1 << (width - 1))) >> dropped
    return -place if bits >> (width - 1) else place


def lines(outcomes: Mapping[Version, Mapping[str, Record]], case: str, title: str, *, in_ulp: bool) -> list[str]:
    """What moved between releases of the tensors that `case` observed, a paragraph for each name; empty where fewer than two are known.

    A distance is told where `in_ulp`: between draws of two random streams there is none.
    """
    names = dict.fromkeys(name for found in outcomes.values() if case in found for name in found[case]["observations"])
    told: list[str] = []
    for name in names:
        seen = {version: found[case]["observations"].get(name) for version, found in outcomes.items() if case in found}
        tensors = {version: each for version, each in seen.items() if each and each.get("digest")}
        if len(tensors) > 1:
            told += [f"  {title}{f' ({name})' if len(names) > 1 else ''}", *(f"    {line}" for line in _told(tensors, in_ulp))]
    return told


def _told(tensors: Mapping[Version, Observed], in_ulp: bool) -> Iterator[str]:
    runs = classes({version: str(each["digest"]) for version, each in tensors.items()})
    yield f"{runs[0]}: {'equal bits' if len(runs[0].releases) > 1 else 'bits of its own'}"
    for change in changes({version: str(each["digest"]) for version, each in tensors.items()}):
        first = next(run for run in runs if run.digest == change.after.digest).first
        back = f", back to the bits of {first}" if change.returns else ""
        yield f"{change.after}: {_distance(change, tensors) if in_ulp else f'other bits than {change.before.last}'}{back}"


def _distance(change: Change, tensors: Mapping[Version, Observed]) -> str:
    first, second = tensors[change.before.last], tensors[change.after.first]
    apart = ulps(first, second)
    if apart is None:
        return f"cannot be compared with {change.before.last}: {_shape(second)}, it was {_shape(first)}"
    known = f" of its first {len(second['values'])} numbers" if _elements(second) > len(second["values"]) else ""
    return f"other bits, up to {apart} ULP{known} from {change.before.last}"


def _shape(tensor: Observed) -> str:
    return f"{tensor['dtype']} {tensor['shape']}"


def _elements(tensor: Observed) -> int:
    count = 1
    for size in tensor["shape"]:
        count *= size
    return count


def between(cases: Sequence[str], outcomes: Mapping[Version, Mapping[str, Record]]) -> list[str]:
    """The paragraphs about a model's answer and its initial weights, for what of them was measured on more than one release."""
    titles = {"mps.subject_answer_repeats": "forward, on equal weights", "init.subject_init_repeats": "initial weights under one seed"}
    return [
        line
        for start, title in titles.items()
        for case in cases
        if case.partition("[")[0] == start
        for line in lines(outcomes, case, title, in_ulp=start.startswith("mps."))
    ]
