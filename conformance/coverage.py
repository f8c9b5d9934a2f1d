"""Which expectation covers a record, found without asking every entry of every record: there may be a million of them."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.expectations import Expectation
from conformance.incell.verdicts import Verdict
from conformance.selectors import matches


class Coverage:
    """The entries of one list of expectations by verdict and case; what was asked once is not looked up again."""

    _last: Coverage | None = None

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self.expectations = expectations
        self._count = len(expectations)
        self._by_verdict: dict[str, list[Expectation]] = {}
        for entry in expectations:
            self._by_verdict.setdefault(entry.verdict.value, []).append(entry)
        self._by_case: dict[tuple[str, str], list[Expectation]] = {}
        self._in_range: dict[tuple[int, str], bool] = {}

    @classmethod
    def of(cls, expectations: Sequence[Expectation]) -> Coverage:
        """The coverage of a list; the last one is kept, since all records of a result set are asked about one list."""
        last = cls._last
        if last is None or last.expectations is not expectations or last._count != len(expectations):
            last = cls._last = cls(expectations)
        return last

    def covering(self, record: Record) -> Expectation | None:
        """The first entry that covers `record`."""
        return next((entry for entry in self._in_scope(record) if entry.within_bound(record)), None)

    def broken(self, record: Record) -> Expectation | None:
        """The first entry on passing records that is in scope and whose bound `record` breaks."""
        return next((entry for entry in self._in_scope(record) if not entry.within_bound(record)), None)

    def _in_scope(self, record: Record) -> list[Expectation]:
        """The entries of the record's verdict that speak of its case, release and device, in their order."""
        key = record["verdict"], record["case"]
        found = self._by_case.get(key)
        if found is None:
            found = [entry for entry in self._by_verdict.get(key[0], ()) if matches(entry.case, key[1])]
            self._by_case[key] = found
        return [entry for entry in found if self._reaches(entry, record["cell"])] if found else found

    def _reaches(self, entry: Expectation, cell: str) -> bool:
        key = id(entry), cell
        known = self._in_range.get(key)
        if known is None:
            known = self._in_range[key] = entry.in_range(Cell.parse(cell))
        return known


def covering(record: Record, expectations: Sequence[Expectation]) -> Expectation | None:
    """The first entry that covers `record`."""
    return Coverage.of(expectations).covering(record)


def regressed(record: Record, expectations: Sequence[Expectation]) -> Expectation | None:
    """The first entry whose bound a passing `record` breaks, unless another entry covers it."""
    coverage = Coverage.of(expectations)
    if record["verdict"] != Verdict.PASS.value or coverage.covering(record) is not None:
        return None
    return coverage.broken(record)
