"""Where this project was measured to work. Written by `conformance claims --marks`: write it again, do not edit it.

from measured import skip_unless_supported, skip_where_broken

pytestmark = skip_unless_supported("cpu")

@skip_where_broken("init.subject_copies[net]")
def test_copies(): ...
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

import pytest
from packaging.specifiers import SpecifierSet

#: The version of these tables' form, and the tool that wrote them.
SCHEMA, TOOL = 1, ""
#: Device -> the range of torch releases that were measured to work there.
SUPPORTED: dict[str, str] = {}
#: Device -> case -> the stretches of releases where it was measured not to come out right.
BROKEN: dict[str, dict[str, tuple[str, ...]]] = {}


def is_supported(device: str = "cpu", torch: str = "") -> bool:
    """Whether that release of torch (the installed one) was measured to work on that device."""
    return device in SUPPORTED and _within([SUPPORTED[device]], torch)


def is_broken(case: str, device: str = "cpu", torch: str = "") -> bool:
    """Whether the case was measured not to come out right there."""
    return _within(BROKEN.get(device, {}).get(case, ()), torch)


def skip_unless_supported(device: str = "cpu") -> pytest.MarkDecorator:
    """A mark that skips where the project was not measured to work."""
    known = SUPPORTED.get(device, "no release")
    return pytest.mark.skipif(not is_supported(device), reason=f"measured to work on {device}: {known}")


def skip_where_broken(case: str, device: str = "cpu") -> pytest.MarkDecorator:
    """A mark that skips where the case was measured not to come out right."""
    return pytest.mark.skipif(is_broken(case, device), reason=f"{case} was measured not to come out right on {device} with this torch")


def _within(specifiers: Iterable[str], torch: str) -> bool:
    release = (torch or version("torch")).partition("+")[0]
    return any(SpecifierSet(each).contains(release, prereleases=True) for each in specifiers)
