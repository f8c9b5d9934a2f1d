"""Reading pages back, as tests of the report do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser

from conformance import guardneeds
from conformance.artifacts import Record
from conformance.cells import Cell
from conformance.expectations import Expectation
from conformance.gate import judge
from conformance.report.site import pages
from conformance.report.sources import SourceFile
from conformance.report.view import View
from conformance.results import ResultSet
from tests.builders import record
from tests.test_expectations import TODAY

GRID = {
    "init.x[a]": {"2.1.2": "pass", "2.10.0": "wrong", "2.11.0": "wrong"},
    "init.x[b]": {"2.1.2": "pass", "2.10.0": "pass", "2.11.0": "pass"},
    "trace.y": {"2.10.0": "unsupported", "2.11.0": "pass"},
}
#: A file of cases with one case function, its right idiom and two wrong ones.
SOURCE = SourceFile(
    "init.xs",
    "init/test_xs.py",
    '''"""Letters."""

from conformance.guards import rms_norm
from conformance.incell import Twin, catches


def drops_it(letter):
    """The mistake."""
    return None


def shouts(letter):
    raise ValueError


@catches(drops_it, Twin(shouts, "raises"), keep=rms_norm)
def test_x(keep, letter):
    """A letter is `kept`.

    pytorch/pytorch#123. Since 2.1;
    until then none.
    """
    assert keep(letter)
''',
)


class Page(HTMLParser):
    """The tags, the attributes and the text of a page, which must be well-formed."""

    INLINE = frozenset({"a", "abbr", "b", "code", "i", "span", "wbr"})
    VOID = frozenset({"meta", "link", "input", "br", "img", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag not in self.INLINE:
            self.text += " "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data

    @property
    def words(self) -> str:
        """The text, each run of white space as one blank."""
        return " ".join(self.text.split())

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [str(attributes["href"]) for tag, attributes in self.tags if tag == "a"]


def site(found: ResultSet, expectations: Sequence[Expectation] = (), files: Sequence[SourceFile] = ()) -> dict[str, str]:
    """Address -> text of every file of the site."""
    return dict(pages(View(found, expectations, judge(found, expectations, TODAY), files, *_guards())))


@cache
def _guards() -> tuple[dict[str, str], list[guardneeds.Way]]:
    return guardneeds.guards(), guardneeds.ways()


def words(found: ResultSet, address: str = "index.html", expectations: Sequence[Expectation] = ()) -> str:
    """The text of one page."""
    return Page(site(found, expectations)[address]).words


def observed(where: Cell, case: str, name: str, **seen: object) -> tuple[Cell, list[Record]]:
    """A cell with one passing case that observed one thing."""
    return where, [record(where, case, observations={name: seen})]
