"""Selectors: ids by braces and fnmatch, releases by specifier only. A selector that matches nothing is an error with the close matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.errors import ConfigError

#: Names that an error lists where none is close.
_MOST_KNOWN = 8

_BRACES = re.compile(r"\{([^{}]*)\}")


def expand_braces(pattern: str) -> list[str]:
    """`{a,b}c` as `ac` and `bc`; several braces multiply, inner ones first."""
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [expanded for option in match.group(1).split(",") for expanded in expand_braces(head + option + tail)]


def literal_brackets(pattern: str) -> str:
    """`pattern` for fnmatch with `[` and `]` taken as themselves: case ids are full of them."""
    return re.sub(r"[\[\]]", lambda match: f"[{match.group()}]" if match.group() == "[" else "]", pattern)


def matches(pattern: str, name: str) -> bool:
    """Whether an id is the pattern itself, or one of its braces' expansions globs it."""
    return pattern == name or _compiled(pattern).match(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The expansions of a pattern as one regular expression: there may be a million names to hold against it."""
    return re.compile("|".join(translate(literal_brackets(one)) for one in expand_braces(pattern)))


def select(patterns: Sequence[str], names: Iterable[str], what: str) -> list[str]:
    """The names that any pattern matches, in their order. A pattern without a match raises ConfigError and names the close ones."""
    known = list(names)
    for pattern in patterns:
        if not chosen([pattern], known):
            raise ConfigError(f"no {what} matches {pattern!r}{close_matches(pattern, known)}")
    wanted = chosen(patterns, known)
    return [name for name in known if name in wanted]


def chosen(patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names that any pattern means: a name that is the pattern itself and no other, else all that it globs."""
    known = set(names)
    return {name for pattern in patterns for name in ([pattern] if pattern in known else known) if matches(pattern, name)}


def close_matches(word: str, known: Sequence[str]) -> str:
    """The end of an error message: what was perhaps meant."""
    found = get_close_matches(word, known, n=3, cutoff=0.4)
    more = f" and {len(known) - _MOST_KNOWN} more" if len(known) > _MOST_KNOWN else ""
    return (
        f"; close: {', '.join(found)}" if found else (f"; known: {', '.join(known[:_MOST_KNOWN])}{more}" if known else "; there are none")
    )


def select_releases(text: str, known: Iterable[str]) -> list[str]:
    """The releases that `text` names, oldest first: one specifier (`>=2.4,<2.9`) or a comma list of exact versions, not a mix.

    An exact version that is not known raises ConfigError with the close ones, as does a specifier that no release satisfies.
    """
    versions = sorted(known, key=Version)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    exact = [part for part in parts if re.match(r"\d", part)]
    if not parts or (exact and len(exact) != len(parts)):
        raise ConfigError(f"--torch {text!r}: give one specifier, as '>=2.4,<2.9', or exact versions, as '2.1.2,2.4.1', not a mix")
    return _exact(exact, versions) if exact else _within(text, versions)


def _exact(asked: list[str], versions: list[str]) -> list[str]:
    wanted = [_patched(version, versions) for version in asked]
    for version in wanted:
        if "*" in version:
            raise ConfigError(f"--torch {version!r}: globs are for ids, they take 2.10 for 2.1; write a specifier, as '==2.1.*'")
        try:
            Version(version)
        except InvalidVersion as error:
            raise ConfigError(f"--torch {version!r} is no version") from error
        if version not in versions:
            hint = close_matches(version, versions)
            raise ConfigError(f"--torch {version!r} is no release of the configuration{hint}; add it under [tool.conformance.releases]")
    return [version for version in versions if version in wanted]


def _patched(version: str, versions: list[str]) -> str:
    """`2.9` is the one release of 2.9 that is known; where there are several, or none, it stays what it is."""
    found = [known for known in versions if re.fullmatch(r"\d+\.\d+", version) and Version(known).release[:2] == Version(version).release]
    return found[0] if len(found) == 1 else version


def _within(text: str, versions: list[str]) -> list[str]:
    try:
        specifier = SpecifierSet(text, prereleases=True)
    except InvalidSpecifier as error:
        raise ConfigError(f"--torch {text!r} is no version specifier, as '>=2.4,<2.9'") from error
    found = [version for version in versions if specifier.contains(version)]
    if not found:
        raise ConfigError(f"--torch {text!r}: no release of the configuration is in that range; it has {', '.join(versions)}")
    return found
