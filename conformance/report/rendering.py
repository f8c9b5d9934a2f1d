"""From values to HTML: one jinja2 environment for all pages, in which text of records is escaped and made visible."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from conformance import __version__
from conformance.columns import Group
from conformance.gate import Judgement
from conformance.incell.verdicts import Verdict
from conformance.plaintext import counted, visible
from conformance.report import addresses
from conformance.report.grid import MEANINGS, SIGNS
from conformance.report.plots import number
from conformance.report.timeline import statement
from conformance.report.view import Row

TEMPLATES = Path(__file__).parent / "templates"
#: Characters of a reason that a page shows; matrix.csv has the whole of it, and of what else it has a column for.
SHOWN = 600
#: Where the whole is of what a record holds and matrix.csv has no column for.
RECORDS = "the cell's records"
_MARKED = re.compile(r"`(?P<code>[^`]+)`|\b(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)#(?P<number>\d{1,7})\b")
_ISSUE = Markup('<a href="https://github.com/{}/issues/{}" rel="noopener noreferrer">{}</a>')


def render(template: str, address: str, **values: Any) -> str:
    """The page at `address`, relative to the site, from a template that gets `values` and `root`, the way back to the site's folder."""
    return _environment().get_template(template).render(address=address, root="../" * address.count("/"), **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.globals.update(
        signs=SIGNS, verdicts=list(Verdict), meanings=MEANINGS, tool=__version__, to=addresses, slug=addresses.slug, css=_style()
    )
    environment.globals.update(
        records=RECORDS, counted=counted, sign=sign, interval=statement, gate=gate, short=number, worst=worst, pythons=pythons
    )
    environment.filters.update(clipped=clipped, prose=prose, breakable=breakable, short_link=short_link)
    return environment


def _style() -> Markup:
    return Markup((TEMPLATES / "site.css").read_text(encoding="utf-8"))


def _finalize(value: Any) -> Any:
    """What autoescape leaves is made visible too: control characters and bidi marks do not reach the page."""
    return visible(value) if type(value) is str else value


def clipped(text: str, shown: int = SHOWN, whole: str = "matrix.csv") -> str:
    """`text` with what does not show as itself escaped, cut at `shown` characters and a note of how many are left and where it is whole."""
    head = visible(text[: shown + 1])
    if len(text) <= shown and len(head) <= shown:
        return head
    return f"{head[:shown]}… ({len(text) - shown:,} more characters in {whole})"


def prose(text: str) -> Markup:
    """`text` escaped, what stands in backticks as code, and each `owner/repository#number` a link to that issue."""
    parts: list[Markup] = []
    end = 0
    shown = visible(text)
    for match in _MARKED.finditer(shown):
        parts.append(escape(shown[end : match.start()]))
        if match["code"]:
            parts.append(Markup("<code>{}</code>").format(match["code"]))
        else:
            parts.append(_ISSUE.format(match["repository"], match["number"], match.group()))
        end = match.end()
    return Markup().join([*parts, escape(shown[end:])])


def breakable(name: str) -> Markup:
    """An id that may be broken after its dots, underscores and brackets, and nowhere else."""
    return Markup(re.sub(r"([._\[-])", r"\1<wbr>", str(escape(visible(name)))))


def sign(verdict: str) -> str:
    """The sign of a verdict by its name."""
    return SIGNS[Verdict(verdict)]


def worst(row: Row) -> str:
    """The worst verdict of a case."""
    return min(row.verdicts, key=lambda verdict: Verdict(verdict).severity)


def gate(judgement: Judgement) -> str:
    """What the gate says, in a sentence."""
    said = {0: "All is as expected.", 5: "Records are incomplete, so nothing here is final."}.get(judgement.exit_code, "Not as expected.")
    return f"{said} {counted(judgement.judged, 'cell')} judged, exit code {judgement.exit_code}."


def pythons(group: Group) -> bool:
    """Whether the columns of a group differ in their Python."""
    return len({column.cell.python for column in group.columns}) > 1


def short_link(link: str) -> str:
    """A link to an issue as `owner/repository#number`, any other without its scheme."""
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)", link)
    return f"{match[1]}#{match[2]}" if match else link.removeprefix("https://")
