"""Which cases a process has: planned ones are described for the supervisor, the others are left out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from conformance.incell import identity
from conformance.incell.features import is_package
from conformance.incell.marks import Twin
from conformance.incell.requirementsets import environment_name
from conformance.incell.scrub import Scrubber
from conformance.incell.settings import Settings

#: Why a case that needs numbers cannot run on a device that holds none.
NO_VALUES = "needs values, and meta holds none"


def requirements_of(item: Any, settings: Settings) -> list[str]:
    """The packages that the case and its subject declare, sorted. A user's subject is not imported for it: it may not be here."""
    needs = {need for mark in item.iter_markers("requires") for need in mark.args if is_package(need)}
    alias = _subject_alias(item)
    if alias in settings.subjects:
        needs.update(settings.subjects[alias]["requirements"])
    elif alias is not None:
        from conformance.subjects import get

        needs.update(get(alias).requirements)
    return sorted(needs)


def select(items: list[Any], settings: Settings, scrub: Scrubber | None) -> tuple[list[Any], list[Any]]:
    """The items that this process keeps, and those that it leaves out: other devices' hosts, deep ones, not wanted ones.

    An id is published, so a parameter that holds a path of this machine is scrubbed in it.
    """
    wanted = set(Path(settings.wanted).read_text(encoding="utf-8").split("\n")) if settings.wanted else None
    kept: list[Any] = []
    left: list[Any] = []
    for item in items:
        case = identity.case_id(item, settings)
        item.conformance_case = scrub.text(case) if scrub is not None else case
        planned = _planned(item, settings) and (wanted is None or item.conformance_case in wanted)
        (kept if planned else left).append(item)
    return kept, left


def _planned(item: Any, settings: Settings) -> bool:
    if settings.subjects and _subject_alias(item) not in settings.subjects and identity.family_of(str(item.path), settings) != "control":
        return False
    if settings.twins and getattr(item, "conformance_twin", None) is None:
        return False
    if item.get_closest_marker("host") and settings.device != "cpu":
        return False
    return settings.depth == "deep" or not any(not mark.args or settings.device in mark.args for mark in item.iter_markers("deep"))


def describe(item: Any, settings: Settings, scrub: Scrubber) -> dict[str, Any]:
    """What the supervisor must know of a planned case before it runs."""
    requirements = requirements_of(item, settings)
    marks = {"limits": list(item.iter_markers("limits"))}
    twin: Twin | None = getattr(item, "conformance_twin_of", None)
    return {
        "case": item.conformance_case,
        "family": identity.family_of(str(item.path), settings),
        "subject": _subject_alias(item),
        "environment": environment_name(requirements),
        "requirements": requirements,
        "file": str(item.path),
        "file_case": identity.file_case(str(item.path), settings),
        "line": item.location[1],
        "title": scrub.text(_title(item)),
        "params": scrub.tree(identity.params_of(item)),
        "timeout_s": limit(marks, "timeout_s") or settings.timeout_s,
        "memory_mb": limit(marks, "memory_mb"),
        "cases_per_worker": limit(marks, "cases_per_worker"),
        "expected": twin.stated(identity.params_of(item).values()) if twin is not None else None,
        "refused": _refusal(item),
        "unsupported": NO_VALUES if settings.device == "meta" and item.get_closest_marker("values") else "",
    }


def limit(marks: dict[str, list[pytest.Mark]], name: str) -> Any:
    """A limit of the case's own, as `timeout_s`; None where the configured one holds."""
    given = marks.get("limits")
    return given[0].kwargs.get(name) if given else None


def _refusal(item: Any) -> str:
    """Why the case is not run: marks that would hide a verdict, bodies that pytest would not run."""
    if item.get_closest_marker("xfail") is not None:
        return "xfail marks are refused: a known deviation belongs into the expectations file"
    body = getattr(item, "obj", None)
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        return "async cases are not run: call asyncio.run inside the case"
    return ""


def _subject_alias(item: Any) -> str | None:
    callspec = getattr(item, "callspec", None)
    alias = callspec.params.get("subject") if callspec is not None else None
    return alias if isinstance(alias, str) else None


def _title(item: Any) -> str:
    doc = getattr(item.obj, "__doc__", None) or ""
    return next((line.strip() for line in doc.splitlines() if line.strip()), "")


def parametrize_first(metafunc: pytest.Metafunc, settings: Settings) -> None:
    """Subjects and dtypes come first in a case's brackets."""
    for mark_name, fixture in (("subjects", "subject"), ("dtypes", "dtype")):
        mark = metafunc.definition.get_closest_marker(mark_name)
        if mark is not None and fixture in metafunc.fixturenames:
            values = list(mark.args) or _subjects(settings)
            metafunc.parametrize(fixture, values, ids=values, indirect=True)


def _subjects(settings: Settings) -> list[str]:
    """What a check runs on: the user's subjects where there are any, else all that ship with the tool."""
    if settings.subjects:
        return sorted(settings.subjects)
    from conformance.subjects import aliases

    return list(aliases())


def parametrize_idiom(metafunc: pytest.Metafunc, *, twins: bool) -> None:
    """The idiom comes last: the right one without a trace in the id, or each wrong twin by its name."""
    mark = metafunc.definition.get_closest_marker("catches")
    if mark is None:
        return
    ((argument, right),) = mark.kwargs.items()
    if twins:
        wrong = [Twin.of(twin) for twin in mark.args]
        metafunc.parametrize(argument, [twin.idiom for twin in wrong], ids=[twin.name for twin in wrong])
    else:
        metafunc.parametrize(argument, [right], ids=[pytest.HIDDEN_PARAM])


def mark_twin(item: Any) -> None:
    """Tell a collected item which wrong twin it has received."""
    mark = item.get_closest_marker("catches")
    callspec = getattr(item, "callspec", None)
    if mark is None or callspec is None:
        return
    (argument,) = mark.kwargs
    for wrong in mark.args:
        twin = Twin.of(wrong)
        if callspec.params.get(argument) is twin.idiom:
            item.conformance_twin, item.conformance_twin_of = twin.name, twin
