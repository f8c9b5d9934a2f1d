"""The page of operators: each by release on MPS, what is registered, upstream-tested and observed side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from conformance.mps import oprows, testlists
from conformance.mps.answers import Answer
from conformance.mps.operators import spans
from conformance.mps.oprows import Cell, OpRow
from conformance.mps.table import stored
from conformance.report import addresses
from conformance.report.rendering import render
from conformance.report.view import View

#: Class and sign of a word.
LOOKS = {
    "yes": ("pass", "✓"),
    "composite": ("pass", "◦"),
    "cpu-fallback": ("unexercised", "c"),
    "no": ("raises", "✕"),
    "unknown": ("none", "·"),
    "": ("none", "·"),
}
#: Dtypes beside float32 whose lists are told where they differ from it.
_OTHERS = ("float16", "bfloat16", "int64", "bool", "complex64")
#: Modules of torch whose name operators have before an underscore.
_MODULES = frozenset({"fft", "linalg", "sparse", "special"})


@dataclass(frozen=True)
class Span:
    """Neighbouring releases with one answer from each source; `registered` is empty where they have no such operator."""

    width: int
    registered: str = ""
    detail: str = ""
    upstream: str = ""
    observed: str = ""


@dataclass(frozen=True)
class OpLine:
    """One operator in the table, and what upstream's lists say of other dtypes than float32."""

    name: str
    first: str
    spans: list[Span]
    dtypes: list[str]

    @property
    def spellings(self) -> str:
        """The names under which one may look for it, as `aten::linalg_qr torch.linalg.qr`."""
        module, _, rest = self.name.partition("_")
        dotted = f"torch.{module}.{rest}" if module in _MODULES else f"torch.{self.name} torch.nn.functional.{self.name}"
        return f"aten::{self.name} {dotted}"

    @property
    def sentence(self) -> str:
        """On which releases it is what on MPS, the newest first."""
        words = [span.registered or "absent" for span in self.spans for _ in range(span.width)]
        told = []
        for word, same in groupby(zip(words, reversed(stored().releases)), key=itemgetter(0)):
            newest, *older = (release for _, release in same)
            told.append(f"{word} {older[-1]} to {newest}" if older else f"{word} {newest}")
        return ", ".join(told)

    @property
    def kinds(self) -> str:
        """What the filter of rows asks for: since when it has a kernel, or that it has none to this day."""
        lacking = "lacking " if self.spans[0].registered == "no" else ""
        fallen = "fallen " if any(span.registered == "cpu-fallback" for span in self.spans) else ""
        return f"{lacking}{fallen}{addresses.slug(f'since-{self.first}') if self.first else 'never'}"


def op_lines(view: View) -> list[OpLine]:
    """The operators that the page lists, by name."""
    return [line(row) for row in oprows.rows(oprows.observed(view.result)) if _says_something(row)]


def op_page(view: View, lines: Sequence[OpLine]) -> str:
    """The HTML of the page."""
    releases = stored().releases[::-1]
    firsts = [(release, addresses.slug(f"since-{release}")) for release in releases[:-1]]
    lists = testlists.digest().releases
    return render("ops.html.j2", addresses.OPERATORS, view=view, lines=lines, releases=releases, firsts=firsts, lists=lists, looks=LOOKS)


def line(row: OpRow) -> OpLine:
    """The row of an operator as the table shows it."""
    grouped = groupby(reversed(stored().releases), key=lambda release: _span(row.cells.get(release), 1))
    found = [_wide(span, len(list(same))) for span, same in grouped]
    return OpLine(row.name, row.first, found, list(_dtypes(row)))


def _span(cell: Cell | None, width: int) -> Span:
    if cell is None:
        return Span(width)
    return Span(width, cell.registered.word, cell.registered.detail, cell.upstream, cell.observed)


def _wide(span: Span, width: int) -> Span:
    return Span(width, span.registered, span.detail, span.upstream, span.observed)


def _says_something(row: OpRow) -> bool:
    """Whether the row tells more than that the operator decomposes everywhere."""
    return any(
        cell.registered.word != "composite" or cell.registered.detail.startswith(("needs", "some")) or cell.observed
        for cell in row.cells.values()
    )


def _dtypes(row: OpRow) -> Iterator[str]:
    """Where upstream's lists say another thing of a dtype than of float32, in words."""
    digest = testlists.digest()
    for dtype in _OTHERS:
        told = [(release, oprows.agreed(digest.words(row.name, release, dtype))) for release in digest.releases]
        apart = [(release, Answer(word)) for release, word in told if word and release in row.cells and word != row.cells[release].upstream]
        for first, last, answer in spans(apart):
            yield f"{dtype} {answer.word}: {first if first == last else f'{first} .. {last}'}"
