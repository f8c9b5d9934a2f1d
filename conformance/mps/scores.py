"""How good the predictions are: operators that should stop on MPS by the table, against what PyTorch's own test lists say of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.mps import audits
from conformance.mps.table import Table

#: Rules beyond registration, and the releases on whose lists they were found by reading what was missed: there the score is no forecast.
FITTED = {
    "float64": "2.8 .. 2.15",
    "uneven_pool": "2.8 .. 2.15",
    "composites expanded": "2.8 .. 2.15",
    "what asks for its device itself (pinv, matrix_rank, quantile)": "2.8, 2.15",
}
_FLOAT64 = "float64"
#: What the forward of each release must reach in float32.
PRECISION, RECALL = 0.98, 0.93


@dataclass
class Score:
    """The confusion matrix of one release and phase: names of OpInfos by what was predicted and what the lists say."""

    release: str
    phase: str
    hits: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)
    rest: int = 0
    #: Those of the hits that no rule but the one on float64 finds, and the alarms that it alone raises.
    by_float64: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many OpInfos were scored."""
        return len(self.hits) + len(self.alarms) + len(self.misses) + self.rest

    @property
    def precision(self) -> float:
        """Of those that were predicted to stop, the part that does."""
        return _part(len(self.hits), len(self.alarms))

    @property
    def recall(self) -> float:
        """Of those that stop, the part that was predicted."""
        return _part(len(self.hits), len(self.misses))

    @property
    def is_good(self) -> bool:
        """Whether the score reaches what the project holds itself to."""
        return self.precision >= PRECISION and self.recall >= RECALL

    @property
    def recall_by_kernels(self) -> float:
        """The recall without the rule on float64."""
        found = [name for name in self.hits if name not in self.by_float64]
        return _part(len(found), len(self.misses) + len(self.hits) - len(found))

    @property
    def accuracy(self) -> float:
        """The part that was predicted right, either way."""
        return (len(self.hits) + self.rest) / self.count if self.count else 1.0


def _part(found: int, not_found: int) -> float:
    return found / (found + not_found) if found + not_found else 1.0


def score(
    release: str,
    truth: Mapping[str, str],
    recordings: Mapping[str, dict[str, Any]],
    table: Table,
    *,
    phase: str = "forward",
    macos: str = "15",
) -> Score:
    """Predictions against `truth`: OpInfo name -> `pass` or `unsupported`; names with another word, and those never recorded, are left out.

    In the backward only OpInfos whose forward is predicted to run are scored.
    """
    made = Score(release, phase)
    for name, word in truth.items():
        recording = recordings.get(name, {"samples": 0})
        if word not in ("pass", "unsupported") or not recording["samples"]:
            continue
        if phase == "backward" and stops(recording, release, table, "forward", macos):
            continue
        predicted = stops(recording, release, table, phase, macos)
        kernels = stops(recording, release, table, phase, macos, ignored=(_FLOAT64,))
        listed = {(True, True): made.hits, (True, False): made.alarms, (False, True): made.misses}.get((predicted, word == "unsupported"))
        if listed is None:
            made.rest += 1
            continue
        listed.append(name)
        if predicted and not kernels:
            made.by_float64.append(name)
    return made


def stops(recording: dict[str, Any], release: str, table: Table, phase: str, macos: str, ignored: Sequence[str] = ()) -> bool:
    """Whether what an OpInfo's samples dispatched in a phase stops on that release."""
    seen = [_entry(each, ignored) for each in recording["seen"] if each[1] == phase]
    audit = audits.of({release: {"torch": release, "seen": seen}}, table, (release,), macos=macos)
    return bool(audit.stopping(release))


def _entry(seen: Sequence[Any], ignored: Sequence[str]) -> dict[str, Any]:
    op, phase, inside, flags, count = seen[:5]
    told = {flag: ["", ""] for flag in flags if flag not in ignored}
    return {"op": op, "phase": phase, "inside": inside, "flags": told, "count": count, "dtypes": [], "site": "", "source": ""}


def lines(scores: Sequence[Score]) -> Iterator[str]:
    """The scores as a table, with the names that were predicted wrong."""
    yield "operators that stop on MPS, float32: predicted from the table against PyTorch's own lists of what is unsupported"
    yield ""
    yield "  release  phase        n  hit alarm  miss precision  recall (kernels) accuracy"
    for each in scores:
        counts = f"{each.count:>4} {len(each.hits):>4} {len(each.alarms):>5} {len(each.misses):>5}"
        parts = f"{each.precision:>9.3f} {each.recall:>7.3f} {each.recall_by_kernels:>9.3f} {each.accuracy:>8.3f}"
        yield f"  {each.release:<8} {each.phase:<9} {counts} {parts}"
    yield ""
    for each in scores:
        for what, names in (("alarms", each.alarms), ("misses", each.misses)):
            if names:
                yield f"  {each.release} {each.phase} {what}: {', '.join(names)}"
    yield ""
    yield "(kernels): the recall without the rule that a float64 result fails."
    yield f"fitted, so no forecast there: {'; '.join(f'{rule} on {releases}' for rule, releases in FITTED.items())}"
