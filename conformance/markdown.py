"""Text of records inside Markdown: inert, whatever it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from conformance.plaintext import one_line

#: What starts markup inside a line; each line that is written begins with text of our own.
_MARKUP = re.compile(r"([\\`*\[\]|~$#])")


def escaped(text: str) -> str:
    """`text` as one line of Markdown that shows as it stands: no markup, no link, no mention."""
    inert = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace("@", "@\u2060")
    return _MARKUP.sub(r"\\\1", inert)


def code(text: str) -> str:
    """An id as a code span, or escaped where it holds what no id should."""
    line = one_line(text, 200)
    return escaped(line) if set(line) & set("`|<>&@\\") else f"`{line}`"


def named(ids: Sequence[str], limit: int) -> str:
    """The first `limit` of some ids as code, and how many there are more."""
    more = f" and {len(ids) - limit} more" if len(ids) > limit else ""
    return ", ".join(map(code, ids[:limit])) + more


def address(link: str) -> str:
    """A checked https link that can end neither its brackets nor its table cell."""
    return quote(link, safe=":/?#=&%~.,;+@!$'*-_")
