"""Whether the cases and their wrong twins come to the outcomes that small scripts had on 17 torch releases: `agreement.py REPORTS`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.artifacts import read_records
from conformance.cells import Cell

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
#: Verdicts of a row that fails.
FAILS = {"wrong", "raises", "crash", "timeout"}
#: The scripts ran on Python 3.11, which the compiler of 2.0 refuses; a cell of that release has a Python that it takes.
COMPILES = ("d_", "c_compile_growth", "c_guard_swallowed")


@dataclass(frozen=True)
class Row:
    """One script and variant: its outcome by release, the cases that stand for it, and where these rightly differ."""

    script: str
    variant: str
    outcomes: Mapping[str, str]
    cases: Sequence[str]
    note: str = ""
    differs: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The row in words."""
        return f"{self.script} {self.variant}".rstrip()

    def asks(self, release: str) -> bool:
        """Whether the row says something about `release`."""
        return release in self.outcomes and not (release.startswith("2.0.") and self.script.startswith(COMPILES))


@dataclass(frozen=True)
class Difference:
    """A row that came out otherwise in one cell."""

    cell: str
    row: Row
    stated: str
    found: str
    explained: bool

    def __str__(self) -> str:
        why = f" ({self.row.note})" if self.explained else ""
        return f"{self.cell}: {self.row.name}: {self.stated} in the table, {self.found} here{why}"


def rows() -> list[Row]:
    """The table joined with the map. Raises ValueError where one has a row that the other lacks."""
    mapped = {(entry["script"], entry["variant"]): entry for entry in tomllib.loads((HERE / "map.toml").read_text(encoding="utf-8"))["row"]}
    found = []
    with (HERE / "outcomes.csv").open(encoding="utf-8", newline="") as lines:
        for outcomes in csv.DictReader(lines):
            script, variant = outcomes.pop("script"), outcomes.pop("variant")
            entry = mapped.pop((script, variant), None)
            if entry is None:
                raise ValueError(f"no case stands for {script} {variant}: add it to map.toml")
            found.append(Row(script, variant, outcomes, entry["cases"], entry.get("note", ""), entry.get("differs", {})))
    if mapped:
        raise ValueError(f"map.toml has rows that the table lacks: {sorted(mapped)}")
    return found


def outcome(verdicts: Sequence[str]) -> str:
    """What a row comes to by the verdicts of its cases; `missing` where one left no record."""
    if any(verdict in FAILS for verdict in verdicts):
        return "fail"
    if all(verdict == "unsupported" for verdict in verdicts):
        return "unsupported"
    told = {verdict for verdict in verdicts if verdict not in ("pass", "unsupported")}
    return "pass" if not told else sorted(told)[0]


def verdicts_of(reports: Path, cell: str) -> dict[str, str]:
    """Case, or `case~twin`, -> verdict of the cell's right idioms and of its wrong twins."""
    found = {}
    for kind in ("results", "twins"):
        records, _ = read_records(reports / kind / cell / "records.jsonl")
        found.update({record["case"]: record["verdict"] for record in records})
    return found


def compare(table: Sequence[Row], cell: str, verdicts: Mapping[str, str]) -> Iterator[Difference | None]:
    """For each row that asks about the cell's release: the difference, or None where the two agree."""
    release = Cell.parse(cell).torch
    for row in table:
        if row.asks(release):
            found = outcome([verdicts.get(case, "missing") for case in row.cases])
            stated = row.outcomes[release]
            yield None if found == stated else Difference(cell, row, stated, found, row.differs.get(release) == found)


def main(reports: Path) -> int:
    """Print each difference and the count; 1 where one is not explained, or nothing was compared."""
    table = rows()
    cells = sorted(folder.name for folder in (reports / "results").iterdir() if Cell.parse(folder.name).device == "cpu")
    compared = [each for cell in cells for each in compare(table, cell, verdicts_of(reports, cell))]
    differences = [each for each in compared if each is not None]
    for each in differences:
        print(each)
    unexplained = sum(not each.explained for each in differences)
    print(
        f"{len(compared) - len(differences)} of {len(compared)} outcomes agree on {len(cells)} releases; {unexplained} differ unexplained"
    )
    return 1 if unexplained or not compared else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
