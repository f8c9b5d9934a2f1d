"""The badge: badge.json for shields.io, and badge.svg that needs nobody."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from conformance import __version__
from conformance.gate import Judgement
from conformance.incell.records import SCHEMA
from conformance.plaintext import one_line
from conformance.results import ResultSet

LABEL = "conformance"
#: Colours of shields.io by their names there; white text on each is readable.
_COLORS = {"brightgreen": "#347d1f", "red": "#b62a1e", "lightgrey": "#5f6368"}
_HEIGHT, _PADDING, _PER_CHARACTER = 20, 10, 6.6


def badge(result: ResultSet, judgement: Judgement) -> dict[str, Any]:
    """The endpoint badge of shields.io: how many releases count, and what the gate says of them."""
    releases = {each.cell.torch for each in result.judged() if each.outcomes()}
    noun = "release" if len(releases) == 1 else "releases"
    open_ = sum(1 for finding in judgement.findings if finding.kind not in ("stale", "unmatched", "overdue"))
    state = {0: "as expected", 1: f"{open_} deviating" if open_ else "expectations stale", 5: "incomplete"}[judgement.exit_code]
    color = {0: "brightgreen", 1: "red", 5: "lightgrey"}[judgement.exit_code]
    return {"schemaVersion": 1, "label": LABEL, "message": f"{len(releases)} torch {noun}, {state}", "color": color}


def svg(told: dict[str, Any]) -> str:
    """The same as a picture: label and message side by side, each text fitted to its half, and named for a screen reader."""
    label, message = one_line(told["label"], 60), one_line(told["message"], 120)
    left, right = (round(len(text) * _PER_CHARACTER) + _PADDING for text in (label, message))
    color = _COLORS.get(str(told["color"]), _COLORS["lightgrey"])
    name = quoteattr(f"{label}: {message}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" aria-label={name}>',
            f"<!-- torch-conformance {__version__}, schema {SCHEMA} -->",
            f"<title>{escape(f'{label}: {message}')}</title>",
            f'<rect width="{left + right}" height="{_HEIGHT}" rx="3" fill="#3b3f45"/>',
            f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v{_HEIGHT - 6}a3 3 0 0 1 -3 3h-{right - 3}z" fill="{color}"/>',
            '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle" aria-hidden="true">',
            _fitted(label, left / 2, left),
            _fitted(message, left + right / 2, right),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _fitted(text: str, middle: float, width: int) -> str:
    return f'<text x="{middle:g}" y="14" textLength="{width - _PADDING}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
