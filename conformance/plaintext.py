"""Plain text for a terminal, a log or a table: that of records as one safe line, whatever it holds, and numbers with their noun."""

from __future__ import annotations

import unicodedata

#: Control, format (bidi and the like), surrogate, private and unassigned characters, and the line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: object, limit: int = 0) -> str:
    """`text` on one line: white space runs become one blank, what a terminal obeys its escape; cut at `limit` characters."""
    line = " ".join(visible(str(text)).split())
    return line if not limit or len(line) <= limit else f"{line[: limit - 1]}…"


def visible(text: str) -> str:
    """`text` with every character that does not show as itself, other than newline and tab, written as its escape."""
    if text.isprintable():
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("ascii", "backslashreplace").decode() if ord(character) > 127 else f"\\x{ord(character):02x}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 case`, `1,421 cases`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
