"""The uses of a model: which checks belong to each, and which of them decide the exit code of its check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from conformance.advice import UNASKED
from conformance.artifacts import Record
from conformance.claimwidth import LOUDNESS
from conformance.errors import ConfigError
from conformance.gate import Finding, Judgement
from conformance.incell.verdicts import Verdict
from conformance.plaintext import counted as counted_of


@dataclass(frozen=True)
class Use:
    """One use: how it is told, and what the ids of its checks begin with."""

    title: str
    starts: tuple[str, ...]


EAGER = "eager"
#: By the word that users give. The longest beginning that fits decides; what belongs to none is eager.
USES = {
    EAGER: Use("eager", ("fallbacks.", "init.", "mps.", "rope.subject_growth_keeps", "rope.subject_trains", "user.")),
    "bfloat16": Use("bfloat16", ("init.subject_casts", "rope.subject_casts", "rope.subject_positions")),
    "compile": Use("torch.compile", ("compile.", "rope.subject_growth_compiles")),
    "trace": Use("torch.jit.trace", ("trace.subject_trace",)),
    "export": Use("torch.export", ("trace.subject_export",)),
    "fx": Use("torch.fx", ("trace.subject_fx",)),
    "onnx": Use("ONNX", ("trace.subject_onnx",)),
    "lowering": Use("lowering to MLIR", ("lowering.",)),
}


def checked(words: Iterable[str], where: str) -> tuple[str, ...]:
    """The uses that `words` name, `all` for every one. Raises ConfigError for a word that is none."""
    found: list[str] = []
    for word in words:
        if word != "all" and word not in USES:
            close = get_close_matches(word, USES, 1)
            raise ConfigError(f"{where}: {word!r} is no use{f'; perhaps {close[0]!r}' if close else ''}; there are {', '.join(USES)}, all")
        found += USES if word == "all" else [word]
    return tuple(dict.fromkeys(found))


def use_of(case: str) -> str:
    """The use that a check belongs to."""
    fitting = [(len(start), name) for name, use in USES.items() for start in use.starts if case.startswith(start)]
    return max(fitting)[1] if fitting else EAGER


@dataclass(frozen=True)
class Judged:
    """A judgement of what models are for, and what was left out of it: loud faults of uses that they are not for."""

    judgement: Judgement
    left_out: tuple[Finding, ...]


def judged(judgement: Judgement, uses: Mapping[str, Sequence[str]]) -> Judged:
    """Leave out what fails loudly in a use that its model (by alias) is not for: who tries it hears of it. What is silent always counts."""
    out = [finding for finding in judgement.findings if finding.records and all(_is_apart(record, uses) for record in finding.records)]
    kept = [finding for finding in judgement.findings if finding not in out]
    return Judged(replace(judgement, findings=kept), tuple(out))


def _is_apart(record: Record, uses: Mapping[str, Sequence[str]]) -> bool:
    loud = LOUDNESS.get(Verdict(record["verdict"])) == "loud"
    return loud and record["subject"] in uses and use_of(record["case"]) not in uses[record["subject"]]


def lines(found: Judged, code: int, reports: str) -> list[str]:
    """What the exit code `code` stands on, and how to say otherwise; `reports` is the folder of the check's results."""
    told = []
    if found.left_out:
        apart = dict.fromkeys(use_of(record["case"]) for finding in found.left_out for record in finding.records)
        titles, words = ", ".join(USES[name].title for name in apart), ",".join([EAGER, *apart])
        told.append(
            f"not counted: {counted_of(len(found.left_out), 'loud fault')} in what the model is not said to be for: {titles} "
            f"(--use {words} counts them)"
        )
    counted = [finding for finding in found.judgement.findings if finding.records]
    if counted and all(record["stage"] in UNASKED for finding in counted for record in finding.records):
        told = ["no check came to its question: mend what is named above first"]
    elif counted:
        first = f"'{counted[0].records[0]['case']}'"
        told += [
            f"counted: {len(counted)}, {_named(counted)}",
            "known and accepted? write down why, in a file that [tool.conformance] expectations names:",
            f"  conformance --reports {reports} expect --update --file known.toml --case {first} \\",
            '    --reason "..." --link https://... --review YYYY-MM-DD',
        ]
    return ["", f"exit code {code}: {_MEANINGS[code]}", *(f"  {line}" for line in told)]


_MEANINGS = {
    0: "nothing fails that counts",
    1: "something fails that counts and that no expectation covers, or an expectation is stale",
    4: "no environment could be made",
    5: "records are incomplete",
}


def _named(findings: Sequence[Finding]) -> str:
    cases = list(dict.fromkeys(finding.records[0]["case"] for finding in findings))
    return ", ".join(cases[:3]) + (", ..." if len(cases) > 3 else "")
