"""The gate of what is published: column by column, whether new results may take the place of those that stand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low

from conformance.artifacts import write_bytes
from conformance.differences import outcomes_of
from conformance.incell.verdicts import Verdict
from conformance.plaintext import one_line
from conformance.publication import Publication, write
from conformance.published import SUFFIX, pack
from conformance.results import CellResult, ResultSet

#: Device and family -> how many cases of each function the columns of that device have, most of them.
_Usual = dict[tuple[str, str], Counter[str]]

#: By so much of the usual number the cases of one function may differ: a release has operators that another has not.
_OWN_CASES = 0.1


@dataclass(frozen=True)
class Decision:
    """What becomes of one column: the state to write, and the results to publish, None where those that stand stay."""

    cell: str
    state: Publication
    results: CellResult | None = None


@dataclass(frozen=True)
class Decisions:
    """The decisions on all columns, in their order."""

    columns: list[Decision] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when a column was held back, else 0."""
        return 1 if any(each.state.is_held for each in self.columns) else 0

    def lines(self) -> list[str]:
        """The decisions for a terminal: what is held back first, with what to do."""
        held = [each for each in self.columns if each.state.is_held]
        told = [one_line(f"{each.cell}: {each.state.sentence}", 600) for each in held]
        if held:
            told.append('    mend it and run it again, or publish it against the gate: --accept CELL --reason "..."')
        fresh = [each for each in self.columns if each.results is not None]
        rest = [each for each in self.columns if each.results is None and not each.state.is_held]
        told += [f"{each.cell}: not among these results, those of {each.state.measured} stay" for each in rest]
        return [*told, f"{len(fresh)} columns published, {len(held)} held back, {len(rest)} as they were"]


def decide(new: ResultSet, old: ResultSet, swing: float, accepted: Mapping[str, str] | None = None) -> Decisions:
    """Whether each column of `new` may be published over that of `old`, the published set; pure.

    `swing` is the share of a family's cases that may change between passing and not; `accepted` are cells, each with the reason to publish
    it whatever the gate says.
    """
    standing = {str(cell.cell): cell for cell in old.cells}
    usual = _usual_cases(new)
    found = []
    for cell in new.cells:
        name = str(cell.cell)
        reasons = list(_reasons(cell, new, standing.get(name), usual, swing))
        found.append(_decision(name, cell, reasons, old.publications.get(name), (accepted or {}).get(name, "")))
    here = {each.cell for each in found}
    found += [Decision(name, state) for name, state in sorted(old.publications.items()) if name not in here]
    return Decisions(found)


def _decision(name: str, cell: CellResult, reasons: list[str], before: Publication | None, accepted: str) -> Decision:
    day = measured_on(cell)
    if not reasons or (accepted and cell.records):
        return Decision(name, Publication(measured=day, accepted=accepted if reasons else ""), cell)
    stays = before or Publication(measured="")
    return Decision(name, replace(stays, held=reasons, tried=day))


def measured_on(cell: CellResult) -> str:
    """The day of a cell's newest record, as 2026-11-30; empty where none says."""
    return max((str(record["started_at"] or "")[:10] for record in cell.records), default="")


def _reasons(cell: CellResult, new: ResultSet, standing: CellResult | None, usual: _Usual, swing: float) -> Iterator[str]:
    """What keeps a column from being published; one that was not measured at all has that reason alone."""
    name = str(cell.cell)
    verdicts = Counter(record["verdict"] for record in cell.outcomes().values())
    if name in new.conflicts:
        yield f"{len(new.conflicts[name])} different results for it"
    elif cell.grey:
        yield "its device did not answer the probe" + (f": {cell.fact('reason')}" if cell.fact("reason") else "")
    elif not verdicts.keys() - {Verdict.MISSING.value}:
        yield "it was planned, and nothing came back"
    else:
        if cell.controls_off:
            yield f"controls off: {', '.join(cell.controls_off)}"
        if cell.problems:
            yield f"{len(cell.problems)} of its lines could not be read: {cell.problems[0]}"
        if verdicts[Verdict.MISSING.value]:
            yield f"{verdicts[Verdict.MISSING.value]} of {verdicts.total()} cases have no record"
        if not verdicts[Verdict.PASS.value]:
            yield f"an all-zero column: none of {verdicts.total()} cases passes"
        yield from _denominators(cell, usual)
        if standing is not None:
            yield from _against(cell, standing, swing)


def _functions(cell: CellResult) -> dict[str, Counter[str]]:
    """Family -> how many cases each of its functions has in the column."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case, record in cell.outcomes().items():
        found[record["family"]][case.partition("[")[0]] += 1
    return found


def _usual_cases(new: ResultSet) -> _Usual:
    """The functions that most columns with the family hold (of as many, the newest release's), and the middle number of their cases."""
    found: dict[tuple[str, str], list[Counter[str]]] = defaultdict(list)
    for cell in sorted(new.judged(), key=lambda each: each.cell.version, reverse=True):
        # what never came says nothing of what is usual
        if any(record["verdict"] != Verdict.MISSING.value for record in cell.outcomes().values()):
            for family, counts in _functions(cell).items():
                found[cell.cell.device, family].append(counts)
    return {place: _middle(columns) for place, columns in found.items()}


def _middle(columns: Sequence[Counter[str]]) -> Counter[str]:
    functions = Counter(frozenset(counts) for counts in columns).most_common(1)[0][0]
    return Counter({each: median_low(counts[each] for counts in columns if each in counts) for each in functions})


def _denominators(cell: CellResult, usual: _Usual) -> Iterator[str]:
    """A family of the column has other cases than in the others of its device in this run."""
    for family, have in sorted(_functions(cell).items()):
        others = usual.get((cell.cell.device, family), have)
        moved = [each for each in have.keys() & others.keys() if abs(have[each] - others[each]) > _OWN_CASES * others[each]]
        named = [_named("without", others.keys() - have.keys()), _named("with", have.keys() - others.keys())]
        named += [f"{have[each]} of {each} in place of {others[each]}" for each in sorted(moved)[:2]]
        told = ", ".join(each for each in named if each)
        if told:
            where = f"where the other columns of {cell.cell.device} have {others.total()}"
            yield f"changed denominators: {have.total()} cases of {family} {where} ({told})"


def _against(cell: CellResult, standing: CellResult, swing: float) -> Iterator[str]:
    """What the published column of the same cell has against it: rows that vanished, and families that swing."""
    before, after = outcomes_of(standing.cell, standing.outcomes()), outcomes_of(cell.cell, cell.outcomes())
    gone = before.keys() - after.keys()
    if gone:
        yield f"{len(gone)} of {len(before)} rows vanished ({_named('as', gone)})"
    both: dict[str, list[bool]] = defaultdict(list)
    for case in before.keys() & after.keys():
        old, new = before[case], after[case]
        if old.known and new.known:
            both[old.record["family"]].append((old.verdict is Verdict.PASS) is not (new.verdict is Verdict.PASS))
    for family, moved in sorted(both.items()):
        if sum(moved) > max(1, swing * len(moved)):
            share = f"{sum(moved)} of {len(moved)} cases ({100 * sum(moved) / len(moved):.1f} %)"
            yield f"{family} swings: {share} changed between passing and not, the limit is {100 * swing:g} %"


def _named(word: str, cases: Collection[str]) -> str:
    first = sorted(cases)[:2]
    more = f" and {len(cases) - len(first)} more" if len(cases) > len(first) else ""
    return f"{word} {', '.join(first)}{more}" if first else ""


def publish(decisions: Decisions, folder: Path) -> None:
    """Writes the columns that may be published, packed, and the state of all, under `folder`."""
    for each in decisions.columns:
        if each.results is not None:
            cell = each.results
            write_bytes(folder / f"{each.cell}{SUFFIX}", pack(cell.cell, cell.environment, cell.collected, cell.records, cell.controls))
    write(folder, {each.cell: each.state for each in decisions.columns})
