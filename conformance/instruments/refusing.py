"""Does compiled code refuse out loud? Its exception has many classes and often says nothing itself, so the words are looked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conformance.instruments.compilation import compiling


def told(error: BaseException | None) -> str:
    """What an exception says, and those that led to it: dynamo of 2.0 says nothing itself."""
    return "" if error is None else f"{error}\n{told(error.__cause__ or error.__context__)}"


def check_refused(code: Callable[..., Any], accepted: Sequence[Any], refused: Sequence[Any], words: Sequence[str]) -> None:
    """Compile `code` and call it on what it takes, then on what it must refuse: with a RuntimeError that tells any of `words`."""
    with compiling(code) as (compiled, _):
        compiled(*accepted)
        with pytest.raises(RuntimeError) as error:
            compiled(*refused)
    assert any(word in told(error.value) for word in words), f"refused for another reason: {error.value}"
