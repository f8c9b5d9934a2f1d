"""Decorators that a case wears. Each is a pytest mark; the plugin gives it its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.incell.verdicts import Verdict

#: The marks that the plugin knows, with what `pytest --markers` says of each.
REGISTERED = {
    "requires": "requires(*needs): a version bound, a dotted torch attribute, a named feature, or a package requirement",
    "catches": "catches(*wrong, name=right): the idiom under test and the wrong twins that this case must catch",
    "dtypes": "dtypes(*names): parametrizes the fixture `dtype`",
    "subjects": "subjects(*aliases): parametrizes the fixture `subject`; without aliases the case is a check of any subject",
    "values": "needs numbers: unsupported on a device that holds none (meta)",
    "host": "never touches a device: planned in cpu cells only",
    "deep": "costs minutes: planned at --depth deep only; with devices, deep('xla'): on those alone",
    "limits": "limits(timeout_s=..., memory_mb=..., cases_per_worker=...): this case's own limits",
    "uncounted": "uncounted(why): no dispatch mode may count this case's ops",
}


@dataclass(frozen=True)
class Twin:
    """A wrong twin and the verdict that the case must give it, where that is not `wrong`; a table gives one by a parameter's value."""

    idiom: Callable[..., Any]
    verdict: str | Mapping[str, str] = Verdict.WRONG.value

    @property
    def name(self) -> str:
        """The name of the mistake."""
        return str(getattr(self.idiom, "__name__", type(self.idiom).__name__))

    def stated(self, params: Iterable[str]) -> str:
        """The verdict that the case must give it with these values of its parameters."""
        if isinstance(self.verdict, str):
            return self.verdict
        return next((self.verdict[value] for value in params if value in self.verdict), Verdict.WRONG.value)

    @classmethod
    def of(cls, wrong: Callable[..., Any] | Twin) -> Twin:
        """`wrong` as a twin whose verdict is known."""
        return wrong if isinstance(wrong, Twin) else cls(wrong)


def requires(*needs: str) -> pytest.MarkDecorator:
    """What the case needs. An absent version, attribute or feature makes it `unsupported`; a package names its requirement set.

    `torch>=2.1` is a version bound; `torch.nn.functional.rms_norm` an attribute; `compile`, `export`, `float64`,
    `complex64`, ... features (conformance.incell.features); anything else a requirement as pip takes it.
    """
    return pytest.mark.requires(*needs)


def catches(*wrong: Callable[..., Any] | Twin, **right: Callable[..., Any]) -> pytest.MarkDecorator:
    """The idiom under test, as `name=right`: the case's argument `name` receives it, or under `--twins` each wrong twin."""
    if len(right) != 1 or not wrong:
        msg = "catches() takes the wrong twins and exactly one name=right idiom, as catches(forgets_scalars, initialise=initialise_all)"
        raise TypeError(msg)
    return pytest.mark.catches(*wrong, **right)


def dtypes(*names: str) -> pytest.MarkDecorator:
    """The dtypes, by torch's names, that the fixture `dtype` takes in turn."""
    return pytest.mark.dtypes(*names)


def subjects(*aliases: str) -> pytest.MarkDecorator:
    """The subjects, by alias, that the fixture `subject` takes in turn.

    Without aliases the case is a check: it holds for any subject, runs on each that ships with the tool, and on the user's own.
    """
    return pytest.mark.subjects(*aliases)


def limits(*, timeout_s: float | None = None, memory_mb: int | None = None, cases_per_worker: int | None = None) -> pytest.MarkDecorator:
    """Limits of this case in place of the configured ones: seconds for setup, call and teardown together; resident megabytes.

    `cases_per_worker`: how many such cases are worth a process of their own, where each process pays for a long import.
    """
    return pytest.mark.limits(timeout_s=timeout_s, memory_mb=memory_mb, cases_per_worker=cases_per_worker)


def uncounted(why: str) -> pytest.MarkDecorator:
    """Ops of this case are not counted by a dispatch mode, since one would change what is measured (a tracer, a compiler)."""
    return pytest.mark.uncounted(why)


values = pytest.mark.values
host = pytest.mark.host
deep = pytest.mark.deep
